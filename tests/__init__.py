"""A regular package: verl's wheel installs a top-level `tests` that would win over a namespace package."""
