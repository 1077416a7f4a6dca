"""`EnvContract`: one test a property of the conformance suite. A new environment joins in four lines:

from tests.contracts.env_contract import EnvContract

class TestMyEnv(EnvContract):
    environment = MyEnv
"""

from __future__ import annotations

import functools
from typing import ClassVar

import pytest

from recipe.agent_contracts.transition.conformance import Checkable, Property, Report, Verdict, check_environment


@functools.cache
def report_of(environment: Checkable) -> Report:
    return check_environment(environment)


class EnvContract:
    environment: ClassVar[Checkable]
    not_claimed: ClassVar[frozenset[Property]] = frozenset()
    """Properties that the environment is known not to promise."""

    @pytest.mark.parametrize("name", list(Property))
    def test_it(self, name: Property) -> None:
        (finding,) = [finding for finding in report_of(self.environment).findings if finding.property is name]
        expected = Verdict.NOT_CLAIMED if name in self.not_claimed else Verdict.HOLDS
        assert finding.verdict is expected, finding.divergence
