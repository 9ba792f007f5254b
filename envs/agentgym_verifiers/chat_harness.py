"""Harness of verifiers for agents without tools: one chat request per turn, in this process.

verifiers' own harness `null` starts a process per turn and downloads the packages of this process.
"""

import httpx
import verifiers.v1 as vf
from verifiers.v1.dialects.chat import message_to_wire

_CONNECT_S = 10.0


class ChatHarness(vf.Harness[vf.HarnessConfig]):
    """Sends the conversation to the model once and returns."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """Implements `Harness.launch`; a refused request is a result with exit code 1."""
        system, prompt = self.resolve_prompt(data)
        messages = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or ()]
        async with httpx.AsyncClient(timeout=httpx.Timeout(None, connect=_CONNECT_S)) as client:
            answer = await client.post(
                f"{endpoint}/chat/completions",
                headers={"Authorization": f"Bearer {secret}"},
                json={"model": ctx.model, "messages": messages},
            )
        if answer.is_success:
            return vf.ProgramResult(exit_code=0, stdout="", stderr="")
        problem = f"status {answer.status_code}: {answer.text}"
        return vf.ProgramResult(exit_code=1, stdout="", stderr=problem)
