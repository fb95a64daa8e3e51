"""Weak scaling of discovery: each device or process brings as many agents as one alone has, and the ideal is to take as long.

    python benchmarks/weak_scaling.py                       1 and 2 virtual devices, then 1 and 2 processes
    python benchmarks/weak_scaling.py --only processes --counts 1 2 4 --agents 8 --steps 20

Printed are seconds per meta-step, the share of the ideal (those of one, divided by these), and the bytes that one device sends in a
meta-step by the collectives of the compiled programs. Devices of one machine share its cores: on two of them two is the most that
means anything, and each is held to one core.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time

WARM = 2  # meta-steps that are not timed
BYTES = {"f64": 8, "s64": 8, "u64": 8, "f32": 4, "s32": 4, "u32": 4, "bf16": 2, "f16": 2, "s8": 1, "u8": 1, "pred": 1}
COLLECTIVE = re.compile(r"= (.*?) (all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter)(?:-start)?\(")
ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")


def moved(program: str) -> int:
    """Bytes of the results of all collectives in a compiled program's text; those in loops count once."""
    total = 0
    for form, _ in COLLECTIVE.findall(program):
        for kind, sizes in ARRAY.findall(form):
            number = 1
            for size in filter(None, sizes.split(",")):
                number *= int(size)
            total += number * BYTES.get(kind, 0)
    return total


def measure(rule: str, agents: int, steps: int, address: str, process: int, processes: int) -> dict[str, float]:
    """Seconds of each meta-step of a small discovery in Catch, on all devices that there are."""
    import jax

    from rulax.discovery.discover import Discoverer
    from rulax.discovery.population import Family
    from rulax.discovery.settings import Discovery
    from rulax.envs.registry import make
    from rulax.parallel import processes as team
    from rulax.parallel.mesh import make_layout
    from rulax.rules.registry import make_rule
    from rulax.settings import Learning, Network

    if processes > 1:
        team.join("none", address, process, processes)
    count = len(jax.devices())
    recipe = make_rule(rule)
    learning, network = Learning(streams=4, unroll=16, learning_rate=1e-3), Network(hidden=(64,), action_model=32)
    settings = Discovery(agents=agents * count, window=4, validation_unroll=16, lifetimes=(1000,), memory="remat")
    family = Family("catch", make("catch"), recipe._replace(learning=learning, network=network), settings)
    layout = make_layout({"agents": count}, {"agents": settings.agents, "streams": learning.streams})
    discoverer = Discoverer([family], steps + WARM, layout=layout)
    state, seconds = discoverer.init(jax.random.key(0)), []
    discoverer.compile()
    while not discoverer.done(state):
        began = time.perf_counter()
        state, _ = discoverer.advance(state)
        seconds.append(time.perf_counter() - began)
    estimate = discoverer.compiled[family.name].as_text()
    skeleton = discoverer.skeleton()
    alike = jax.tree.map(lambda x: jax.ShapeDtypeStruct((settings.agents, *x.shape), x.dtype), skeleton.meta_params)
    step = discoverer._optimise.lower(skeleton.meta_params, skeleton.optimiser_state, (alike,)).compile().as_text()
    team.leave()
    return {"seconds": statistics.median(seconds[WARM:]), "estimate": moved(estimate), "optimise": moved(step)}


def child(devices: int, processes: int, arguments: argparse.Namespace) -> dict[str, float]:
    """The same in processes of their own: so many devices in each."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
    flags = f"--xla_force_host_platform_device_count={devices} --xla_cpu_multi_thread_eigen=false"
    variables = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags, "OMP_NUM_THREADS": "1"}
    started = []
    for process in range(processes):
        words = [sys.executable, __file__, "--child", address, str(process), str(processes)]
        words += ["--rule", arguments.rule, "--agents", str(arguments.agents), "--steps", str(arguments.steps)]
        started.append(subprocess.Popen(words, env=variables, stdout=subprocess.PIPE, text=True))
    outputs = [each.communicate()[0] for each in started]
    if any(each.returncode for each in started):
        raise SystemExit("a process failed; its error is above")
    return json.loads(outputs[0].strip().splitlines()[-1])


def main() -> None:
    """All counts of devices and of processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("devices", "processes"))
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rule", default="lpg", help="kind of rule; disco takes minutes to compile")
    parser.add_argument("--agents", type=int, default=4, help="of each device")
    parser.add_argument("--steps", type=int, default=10, help="meta-steps that are timed")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        address, process, processes = arguments.child
        print(json.dumps(measure(arguments.rule, arguments.agents, arguments.steps, address, int(process), int(processes))))
        return
    print("| | seconds per meta-step | share of the ideal | bytes in estimates | bytes in the optimiser |\n|---|---|---|---|---|")
    for kind in ("devices", "processes"):
        if arguments.only not in (None, kind):
            continue
        alone = None
        for count in arguments.counts:
            found = child(count, 1, arguments) if kind == "devices" else child(1, count, arguments)
            alone = alone or found["seconds"]
            share = 100 * alone / found["seconds"]
            sent = [f"{found[program]:,}" for program in ("estimate", "optimise")]
            cells = [f"{count} {kind}", f"{found['seconds']:.3f}", f"{share:.0f} %", *sent]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
