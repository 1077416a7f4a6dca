"""The environment `terminal`: a deterministic virtual file tree that an agent repairs through tools.

task.py what a task is (public part, hidden part) · tools.py the tools · world.py the state and the pure step ·
env.py the AgentEnv · formats.py, wordings.py, families.py, generator.py the task generator · demonstrations.py
scripted demonstrations of mixed quality · dataset.py the rows that a trainer reads. Nothing is imported here, so
that the verifier can read the task types without loading the environment.
"""
