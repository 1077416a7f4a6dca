"""Why an episode ended: one code each, split into outcomes (may carry reward) and censored events (never do)."""

from __future__ import annotations

from enum import StrEnum


class Termination(StrEnum):
    """Termination code of an episode. The value is the record field, the metric key and the trace tag."""

    AGENT_FINISH = "agent_finish"
    ENV_TERMINAL_SUCCESS = "env_terminal_success"
    ENV_TERMINAL_FAILURE = "env_terminal_failure"
    TASK_BUDGET_EXHAUSTED = "task_budget_exhausted_terminal"
    MAX_STEP_TRUNCATION = "max_step_truncation"
    MAX_TOKEN_TRUNCATION = "max_token_truncation"
    TOOL_TIMEOUT = "tool_timeout"
    INFRA_ABORT = "infra_abort"
    SCHEDULER_CANCEL = "scheduler_cancel"

    @property
    def is_outcome(self) -> bool:
        """Whether the verifier may score this episode. Censored episodes never become reward 0."""
        return self in _OUTCOMES


_OUTCOMES = frozenset(
    {
        Termination.AGENT_FINISH,
        Termination.ENV_TERMINAL_SUCCESS,
        Termination.ENV_TERMINAL_FAILURE,
        Termination.TASK_BUDGET_EXHAUSTED,
    }
)
