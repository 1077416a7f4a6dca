"""Update contract: how reward became exactly one policy update."""
