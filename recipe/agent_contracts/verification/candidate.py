"""The candidate's side of the two-box grader: sent into the box as text, it calls what the agent wrote.

Standard library only. It knows neither tests nor expected values and holds nothing but its stdin and stdout, so
whatever the agent's code does to it, the most that it can say is an answer.
"""

import importlib
import json
import os
import sys


def main() -> None:
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the agent prints is no answer
    answers.write(b'"ready"\n')
    answers.flush()
    sys.pycache_prefix = "/nonexistent"  # an agent can forge cached bytecode that differs from its source
    sys.path.insert(0, os.getcwd())
    for line in requests:
        request = json.loads(line)
        try:
            function = getattr(importlib.import_module(request["module"]), request["function"])
            answer = {"id": request["id"], "value": function(*request["arguments"])}
            encoded = json.dumps(answer, allow_nan=False)
        except Exception as error:  # the boundary: the agent's failure is an answer like another
            encoded = json.dumps({"id": request["id"], "error": type(error).__name__})
        answers.write(encoded.encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
