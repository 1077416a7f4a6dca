"""Does verifier error accumulate with the horizon? A scripted experiment on the real environment and verifier.

    design -> script -> episode (AgentEnv, fixed token budget) -> judgements -> figures by cell -> preregistered test

`design` and `superlinearity` are the preregistration: they were fixed before the first run and docs/horizon.md says the
same in words. The actor and the weak verifiers are scripts, so what is measured is the protocol, not a model.
"""
