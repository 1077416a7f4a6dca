"""EvalFirewall: what a training file and a held-out file have in common, and what stands between them."""
