"""Environment of verifiers for tests: two turns, and even examples are solved.

verifiers' own examples load their data from the network.
"""

import verifiers.v1 as vf

__all__ = ["EvenEnv", "EvenTaskset"]


class EvenData(vf.TaskData):
    number: int


class EvenTask(vf.Task[EvenData]):
    @vf.reward
    async def is_even(self, trace: vf.Trace) -> float:
        if self.data.number == 5:
            raise RuntimeError("five has no reward")
        return float(self.data.number % 2 == 0 and trace.num_turns > 0)


class EvenTaskset(vf.Taskset[EvenTask, vf.TasksetConfig]):
    def load(self):
        for number in range(8):
            prompt = f"Is {number} even?"
            yield EvenTask(EvenData(number=number, prompt=prompt), self.config.task)


class EvenEnvConfig(vf.EnvConfig):
    agent: vf.AgentConfig = vf.AgentConfig()


class EvenEnv(vf.Env[EvenEnvConfig]):
    async def run(self, task, agents):
        async with agents.agent.interaction(task) as interaction:
            segment = await interaction.turn()
            if not segment.terminated:
                await interaction.turn("Are you sure?")
