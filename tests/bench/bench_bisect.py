"""How often the search names the wrong change, on simulated cases, beside a plain bisection that runs each point once.

environment/run python tests/bench/bench_bisect.py [--cases N]
"""

import argparse
import random
import statistics
import sys
import time
from collections import Counter

from simulate_bisect import Scenario, search

from runbook_lib.bisect.search import Conclusion, Point

TENSORRT_LLM = {
    "tags": ["26.04-py3", "26.05-py3"],
    "components": ["nccl", "cublas", "cudnn", "transformer-engine"],
    "culprits": ["nccl"],
    "changed_at": "26.05-py3",
    "good": {"mean": 4.07, "cv": 0.018},
    "bad": {"modes": [[2.54, 0.03, 0.6], [4.16, 0.02, 0.4]]},
    "budget": 40,
}


def random_case(generator: random.Random) -> Scenario:
    """Return a case: noise 0.5 to 5 %, an effect of 3 to 40 %, 3 to 12 components, one in ten an interaction."""
    components = [f"component-{number}" for number in range(generator.randint(3, 12))]
    tags = [f"tag-{number:02}" for number in range(generator.choice([2, 2, 3, 6, 12]))]
    noise, effect, higher = generator.uniform(0.005, 0.05), generator.uniform(0.03, 0.4), generator.random() < 0.5
    slow = 1 - effect if higher else 1 + effect
    modes = [[slow, noise, 1.0]]
    if generator.random() < 0.3:
        share = generator.uniform(0.4, 0.9)
        modes = [[slow, noise, share], [generator.uniform(0.98, 1.02), noise, 1 - share]]
    case = {
        "tags": tags,
        "components": components,
        "culprits": generator.sample(components, 2 if generator.random() < 0.1 else 1),
        "changed_at": generator.choice(tags[1:]),
        "higher_is_better": higher,
        "good": {"mean": 1.0, "cv": noise},
        "bad": {"modes": modes},
        "budget": generator.choice([20, 40, 60, 100]),
    }
    return Scenario.read(case)


def plain(scenario: Scenario, seed: int) -> Conclusion:
    """Bisect the tags, then try each component, with one run per point and the middle of the ends as the limit."""
    generator, tags = random.Random(seed), scenario.problem.tags
    good, bad = (scenario.run(Point(tag), generator) for tag in (tags[0], tags[-1]))

    def is_good(point: Point) -> bool:
        return abs(scenario.run(point, generator) - good) < abs(bad - good) / 2

    first, last = 0, len(tags) - 1
    while last - first > 1:
        middle = (first + last) // 2
        first, last = (middle, last) if is_good(Point(tags[middle])) else (first, middle)
    culprits = tuple(name for name in scenario.problem.components[tags[last]] if is_good(Point(tags[last], name)))
    verdict = "culprit" if culprits else "not a single component"
    return Conclusion(verdict, "", step=(tags[first], tags[last]), culprits=culprits)


def main() -> int:
    """Print the measures; return 1 if one misses its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=1000)
    cases = parser.parse_args().cases
    started = time.perf_counter()
    known, runs, over = Counter[str](), list[int](), 0
    for seed in range(100):
        conclusion, ledger = search(Scenario.read(TENSORRT_LLM), seed)
        known[Scenario.read(TENSORRT_LLM).judge(conclusion)] += 1
        runs.append(len(ledger))
    found, reference = Counter[str](), Counter[str]()
    for seed in range(cases):
        case = random_case(random.Random(seed))
        conclusion, ledger = search(case, seed)
        found[case.judge(conclusion)] += 1
        reference[case.judge(plain(case, seed))] += 1
        over += len(ledger) > case.problem.budget
    print(f"TensorRT-LLM's case, 100 seeds   {dict(known)}, median {statistics.median(runs)} runs, most {max(runs)}")
    print(f"{cases} random cases             {dict(found)}")
    print(f"plain bisection, the same cases  {dict(reference)}")
    print(f"{time.perf_counter() - started:.0f} s")
    limits = {
        "names NCCL, of 100 (at least 95)": known["right"] >= 95,
        "median runs (at most 30)": statistics.median(runs) <= 30,
        "wrong culprits (at most 1 %)": found["wrong"] <= cases / 100,
        "budgets exceeded (none)": over == 0,
    }
    for name, holds in limits.items():
        print("PASS" if holds else "FAIL", name)
    return 0 if all(limits.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
