"""Train an agent, look at its curve, let it act."""

import sys

import rulax

steps = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000

run = rulax.train("catch", rule="actor_critic", steps=steps, seeds=3, quiet=True)
print(run)  # Run(catch · actor_critic · 3 seeds, 200,000 steps, final return 1)
print("return at each tenth of the run:", run.returns.mean(axis=1)[:: max(1, len(run.returns) // 10)].round(2))

environment = rulax.make("catch")
print("the environment:", environment)

import jax  # noqa: E402  (after rulax, which sets nothing up but is nice to read first)

state, observation = environment.reset(environment.default_task(), jax.random.key(0))
print("the agent's first move:", ["left", "stay", "right"][int(run.agent.act(observation))])
