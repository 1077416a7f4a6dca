"""The cold start: a 0.6M-parameter policy trained from nothing that succeeds sometimes.

tokenizer.py byte-level BPE and chat template · model.py Qwen2 with a structured init · episodes.py token ids of
demonstrations and observations · warmup.py copying · train.py imitation and the command line · evaluate.py rollouts
· fixture.py the cached folder and its key. Reinforcement learning starts from its result.
"""
