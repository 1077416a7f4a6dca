"""verl's vLLM server, which also says which weights a turn began with.

verl 0.9.1 labels a turn with the version at its end, so a switch inside the turn would pass for the new version alone.
Here the label at admission comes with it, as `min_global_steps` beside `max_global_steps`.
"""

from __future__ import annotations

from typing import Any

import ray
from verl.workers.rollout.replica import TokenOutput
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica


class ContractHttpServer(vLLMHttpServer):
    """One server of one replica."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._began_with: dict[str, int | None] = {}

    async def _park_until_admitted(self, request_id: str) -> TokenOutput | None:
        """verl's last step before the engine gets a request; it may have waited for a weight switch."""
        rejected: TokenOutput | None = await super()._park_until_admitted(request_id)
        self._began_with[request_id] = self.global_steps
        return rejected

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **kwargs: Any
    ) -> TokenOutput:
        """verl's method, with both labels of the turn in `extra_fields`."""
        try:
            output: TokenOutput = await super().generate(prompt_ids, sampling_params, request_id, **kwargs)
            output.extra_fields["min_global_steps"] = self._began_with.get(request_id)
            output.extra_fields["max_global_steps"] = output.extra_fields["global_steps"]
            return output
        finally:
            self._began_with.pop(request_id, None)


class ContractReplica(vLLMReplica):
    """verl's replica with our server. Registered by `verl_ext.rollouts`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.server_class = ray.remote(ContractHttpServer)
