"""The wordings (templates) of the objectives: many for training, a few for each half of the held-out set.

Known style recombines phrases that training uses: each pair of neighbouring words occurs in training. Unseen wording
uses known words in new phrases: no three neighbouring words occur in training. A test holds both to it.
Slots: {file} the file to change, {source} the file to read from, {key}, {value}.
"""

from __future__ import annotations

from recipe.agent_contracts.transition.envs.terminal.task import Split

# One row: verbs, and phrases that start with one of them ("%" is the capitalised verb, "~" the lower-case one).
_VERB_PHRASES: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "set": [
        (
            ("Set", "Change", "Update"),
            (
                "% {key} to {value} in {file}.",
                "% {file}: {key} must be {value}.",
                "% {key} of {file} to {value}.",
                "% {file}: the {key} should be {value}.",
                "In {file}, ~ {key} to {value}.",
                "In {file}, ~ the {key} to {value}.",
            ),
        ),
        (("Use", "Put"), ("% {value} for the {key} of {file}.", "% {value} as {key} in {file}.")),
    ],
    "copy": [
        (
            ("Set", "Change", "Update"),
            (
                "% {key} in {file} to the value in {source}.",
                "% {key} in {file} with the value from {source}.",
                "% {file}: {key} must match {source}.",
                "% {file}: use the {key} of {source}.",
                "In {file}, ~ {key} to match {source}.",
            ),
        ),
        (("Copy", "Take"), ("% {key} from {source} to {file}.", "% the {key} of {source} for {file}.")),
    ],
    "repair": [
        (
            ("Repair", "Fix"),
            (
                "{file} is broken. % it.",
                "{file} is broken; ~ it.",
                "% the syntax of {file}.",
                "% the broken line in {file}.",
                "{file} has a syntax error; ~ it.",
                "% {file}.",
                "{file} must be valid; ~ it.",
                "% the syntax error in {file}.",
            ),
        ),
    ],
    "drop": [
        (
            ("Remove", "Delete", "Drop"),
            (
                "% {key} from {file}.",
                "% {key} in {file}.",
                "% the {key} entry from {file}.",
                "% the {key} entry of {file}.",
                "{file} should not have {key}. % it.",
                "In {file}, ~ the {key} entry.",
                "Update {file}: ~ {key}.",
            ),
        ),
    ],
    "extract": [
        (
            ("Write", "Put"),
            (
                "% the {key} value of {source} to {file}.",
                "% only the {key} value from {source} in {file}.",
                "% the value on the {key} line of {source} in {file}.",
                "Find the {key} value in {source} and ~ it in {file}.",
                "Take the {key} value of {source} and ~ it in {file}.",
                "Find {key} in {source} and ~ what it is in {file}.",
            ),
        ),
    ],
    "schema": [
        (
            ("Repair", "Fix"),
            (
                "% {file} with the schema {source}.",
                "% {file} to match the schema {source}.",
                "{file} does not match the schema {source}; ~ it.",
                "Check {file} with the schema {source} and ~ it.",
                "{file} must follow the schema {source}; ~ it.",
            ),
        ),
    ],
    "cli": [
        (
            ("Turn", "Convert"),
            (
                "% {source} into {file}.",
                "% the command output {source} into {file}.",
                "% the output in {source} into {file}.",
                "Take the command output {source} and ~ it into {file}.",
            ),
        ),
        (("Write", "Put"), ("% the entries of {source} in {file}.", "% the command output {source} in {file}.")),
    ],
}

_OTHER_PHRASES: dict[str, tuple[str, ...]] = {
    "set": (
        "The {key} in {file} should be {value}.",
        "The {key} of {file} must be {value}.",
        "In {file}, {key} must be {value}.",
        "{file}: the {key} must be {value}.",
        "In {file}, the {key} should be {value}.",
        "{file} has a wrong {key}; the right one is {value}.",
        "{value} is right for the {key} in {file}.",
        "The right {key} of {file} is {value}.",
        "{file} has {key}: make it {value}.",
        "Make the {key} of {file} {value}.",
        "In {file}, make {key} {value}.",
        "{file} should use {value} as {key}.",
        "For the {key} of {file}, take {value}.",
    ),
    "copy": (
        "Take {key} from {source} and put it in {file}.",
        "In {file}, {key} must match {source}.",
        "In {file}, the {key} must match the value in {source}.",
        "{file} has a wrong {key}; use the {key} of {source}.",
        "Use the {key} of {source} in {file}.",
        "Use {key} from {source} in {file}.",
        "Put the value of {key} from {source} in {file}.",
        "{source} has the right {key}; {file} is wrong.",
        "{file} must have the same {key} as {source}.",
        "The {key} in {source} is right; {file} should have the same.",
        "Make {key} in {file} the same as in {source}.",
        "{key} in {file} should be what {source} has.",
        "{key} in {file} is wrong; {source} has the right one.",
    ),
    "repair": ("{file} is wrong; make it valid.",),
    "drop": ("{file} should not have {key}.", "{file}: it should not have {key}."),
    "extract": (
        "{file} must have the {key} value from {source}.",
        "Update {file}: it must have the {key} value of {source}.",
        "Update {file} with the value on the {key} line in {source}.",
        "{file} must be what {source} has on the {key} line.",
        "{file} should be the {key} value of {source}.",
        "From {source}, take only {key} and put it in {file}.",
        "Make {file} the {key} value from {source}.",
        "What {source} has as {key} should be in {file}.",
        "The value of {file} is the {key} in {source}.",
    ),
    "schema": ("Make {file} match the schema {source}.", "{file} must be valid for the schema {source}."),
    "cli": (
        "Make {file} from the command output {source}.",
        "{file} must have what the command output {source} has.",
        "{file} should have the same entries as {source}.",
        "Make {file} with all entries of {source}.",
        "The entries of {source} must be in {file}.",
    ),
}

_KNOWN_STYLE: dict[str, tuple[str, ...]] = {
    "set": (
        "Please change {file}: {key} should be {value}.",
        "Update the {key} of {file} to {value}.",
        "{file} has a wrong {key}; the {key} must be {value}.",
    ),
    "copy": (
        "Please update {file}: {key} must match the value in {source}.",
        "Use the value of {key} from {source} in {file}.",
        "Change {key} in {file} to match {source}.",
    ),
    "extract": (
        "Take the {key} value from {source} and write what it is in {file}.",
        "Put the {key} value of {source} in {file}.",
        "Update {file} with the {key} value in {source}.",
    ),
}

_UNSEEN_WORDING: dict[str, tuple[str, ...]] = {
    "set": (
        "{key} is wrong in {file}: use {value}.",
        "Make {value} the {key} for {file}.",
        "{file} must take {value} for {key}.",
    ),
    "copy": (
        "{key} is wrong in {file} and right in {source}.",
        "Make {file} use {source} for {key}.",
        "For {key}, make {file} follow {source}.",
    ),
    "extract": (
        "In {source}, find {key}: it is the value for {file}.",
        "Make {file} only the value {source} has for {key}.",
        "Find only the {source} {key} for {file}.",
    ),
}


def _training(operation: str) -> tuple[str, ...]:
    phrases = [
        phrase.replace("%", verb).replace("~", verb.lower())
        for verbs, forms in _VERB_PHRASES[operation]
        for phrase in forms
        for verb in verbs
    ]
    phrases += _OTHER_PHRASES[operation]
    polite = ["Please " + text[0].lower() + text[1:] for text in phrases if not text.startswith(("{", "The", "In "))]
    return tuple(dict.fromkeys(phrases + polite))


WORDINGS: dict[Split, dict[str, tuple[str, ...]]] = {
    "train": {operation: _training(operation) for operation in _VERB_PHRASES},
    "heldout_known_style": _KNOWN_STYLE,
    "heldout_unseen_wording": _UNSEEN_WORDING,
}


def template_id(split: Split, operation: str, index: int) -> str:
    """The name of one wording, e.g. `set/train/07`."""
    return f"{operation}/{split}/{index:02d}"
