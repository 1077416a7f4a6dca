"""Which tasks misbehave and how, by seed. Apart from faulty_domain, so that the tests need not register that domain."""

NUM_KINDS = 16
RAISES, HANGS, VERIFIER_DIES = 1, 2, 3
