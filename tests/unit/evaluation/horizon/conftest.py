import pytest

from recipe.agent_contracts.domains import DOMAINS
from recipe.agent_contracts.evaluation.horizon.design import Corruption, Design, Work
from recipe.agent_contracts.evaluation.horizon.experiment import measure
from recipe.agent_contracts.evaluation.horizon.playing import byte_renderer
from recipe.agent_contracts.evaluation.horizon.verifiers import StateVerifier, verifiers_of
from recipe.agent_contracts.verification.process import VerifierProcess

SMALL = Design(
    horizons=(4, 8, 12), works=(Work.CONSTANT,), corruptions=(Corruption.SEMANTIC_LURE, Corruption.AMBIGUOUS_RUBRIC)
)


@pytest.fixture(scope="session")
def process():
    started = VerifierProcess(DOMAINS["terminal"].verifier, timeout_seconds=60.0)
    yield started
    started.close()


@pytest.fixture(scope="session")
def state_verifier(process):
    return StateVerifier(process)


@pytest.fixture(scope="session")
def small_design():
    return SMALL


@pytest.fixture(scope="session")
def small_result(process):
    return measure(SMALL, verifiers_of(SMALL, process))


@pytest.fixture(scope="session")
def renderer():
    return byte_renderer()
