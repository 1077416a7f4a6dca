"""Write the terminal tasks as parquet: train.parquet and heldout.parquet.

    python data_preprocess/terminal_tasks.py tasks=smoke --out data/terminal
    python data_preprocess/terminal_tasks.py --train 5000 --heldout 400 --seed 7 --out data/terminal

The same arguments give identical bytes. Columns: see recipe/agent_contracts/transition/envs/terminal/dataset.py.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from recipe.agent_contracts.canonical import sha256_file
from recipe.agent_contracts.transition.envs.terminal.dataset import SIZES, Budgets, DatasetSize, write_dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", choices=sorted(SIZES), default="smoke", help="a named size (default: smoke)")
    parser.add_argument("--train", type=int, help="number of train tasks, instead of the named one")
    parser.add_argument("--heldout", type=int, help="number of held-out tasks, both halves together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step-budget", type=int, default=Budgets().step_budget, help="model turns of an episode")
    parser.add_argument("--token-budget", type=int, default=Budgets().token_budget, help="tokens of an episode")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    # Words in Hydra's form (tasks=article) mean the option of that name.
    words = [f"--{word}" if "=" in word and not word.startswith("-") else word for word in sys.argv[1:]]
    args = parser.parse_args(words)
    num_train, num_heldout = SIZES[args.tasks]
    size = DatasetSize(
        num_train=num_train if args.train is None else args.train,
        num_heldout=num_heldout if args.heldout is None else args.heldout,
    )
    budgets = Budgets(step_budget=args.step_budget, token_budget=args.token_budget)
    for path in write_dataset(args.out, size, args.seed, budgets):
        print(f"{path}  {sha256_file(path)}")


if __name__ == "__main__":
    main()
