"""Spans of an episode in verl's configured trace backend: verl makes the root span, these are its children.

    agent_loop (verl) -> episode -> turn -> LLMServerClient.generate (verl), tool -> ... ; agent_loop -> verification

Only MLflow has nested spans in verl 0.9.1; with another backend, or outside a traced sample, nothing is written.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from verl.utils.rollout_trace import RolloutTraceConfig, _trace_enabled


class Span:
    """What a caller may say about a span; silent when nothing is traced."""

    def __init__(self, span: Any = None) -> None:
        self._span = span

    def outputs(self, **values: Any) -> None:
        if self._span is not None:
            self._span.set_outputs(values)


def is_traced() -> bool:
    """Whether the current sample is written to MLflow."""
    return RolloutTraceConfig.get_backend() == "mlflow" and _trace_enabled.get()


@contextlib.contextmanager
def span(name: str, span_type: str, **inputs: Any) -> Iterator[Span]:
    """A child span of the current one. `span_type` is one of MLflow's (AGENT, CHAIN, TOOL, EVALUATOR)."""
    if not is_traced():
        yield Span()
        return
    import mlflow

    with mlflow.start_span(name=name, span_type=span_type) as current:
        current.set_inputs(inputs)
        yield Span(current)


def summarise_trace(inputs: Any, outputs: Any, tags: dict[str, Any]) -> None:
    """What the MLflow UI lists of the whole trace. Call it where verl's root span is the current one."""
    if is_traced():
        import mlflow

        root = mlflow.get_current_active_span()
        if root is not None:
            root.set_inputs(inputs)
            root.set_outputs(outputs)
        mlflow.update_current_trace(tags={key: str(value) for key, value in tags.items()})


def create_experiment(tracking_uri: str, name: str, artifacts: str) -> None:
    """Create the store and the experiment before the workers start, which would race for both."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri)
    if client.get_experiment_by_name(name) is None:
        client.create_experiment(name, artifact_location=artifacts)


def flush() -> None:
    """Wait for the background export. Without it the last traces of a process would lack their root span."""
    if RolloutTraceConfig.get_backend() == "mlflow":
        import mlflow

        mlflow.flush_trace_async_logging()
