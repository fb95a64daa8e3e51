"""POET's page and its data, from a story that is known."""

import json

import jax
import numpy as np
import pytest

from rulax.agents.gaussian import make_gaussian_agent
from rulax.commands.method.pages import write_story
from rulax.envs import make
from rulax.files import jsonable
from rulax.methods.poet_agents import NETWORK
from rulax.methods.poet_story import Branch, PoetStory, Story, as_record, from_record
from rulax.report import poet
from rulax.report.blocks import Picture, Table


def branch(number, parent, solved, direct, agent=None):
    task = np.array([0.0, 0, 0.5 * number, 0, 0, 0, 0], np.float32)
    found = {"born": 50 * number, "retired": None, "solved": solved, "solver": max(parent, 0), "best": 240.0 if solved else -np.inf}
    return Branch(number, parent, **found, difficulty=0.5 * number, task=task.tolist(), direct=direct, agent=agent, given=task)


@pytest.fixture(scope="module")
def story():
    environment = make("hurdles", limit=5)
    agent = make_gaussian_agent(jax.random.key(0), environment.observation, 2, NETWORK)
    branches = [
        branch(0, -1, 25, None, agent),
        branch(1, 0, 75, 100.0, agent),
        branch(2, 1, 150, 20.0, agent),
        branch(3, 1, None, None),
    ]
    runs = [Story("POET", branches, [(25, 0, 1, True, True), (50, 1, 0, False, False)], 200, 3)]
    runs.append(Story("without transfers", [*branches[:1], branch(1, 0, None, None)], [], 200, 1))
    return PoetStory(environment, 230.0, 46.0, runs)


def test_the_page_shows_trees_films_and_tables(story):
    page = poet.poet_page(story)
    pictures = [block for block in page.blocks if isinstance(block, Picture)]
    # The one that direct evolution does not begin to solve comes first, then the hardest.
    assert [block.title for block in pictures] == [
        "The tree of environments",
        *(f"Environment {number} at play" for number in (2, 1, 0)),
    ]
    assert pictures[0].source.startswith("data:image/png;base64,")
    assert all(block.source.startswith("data:image/gif;base64,") for block in pictures[1:])
    assert "Direct ES reaches 20 here" in pictures[1].note
    tables = [block for block in page.blocks if isinstance(block, Table)]
    assert [len(table.rows) for table in tables] == [4, 2]
    assert tables[0].strong == [2]
    assert page.subtitle == "3 solved in 200 iterations"


def test_how_many_were_solved_is_counted_over_time(story):
    assert poet.solved_over_time(story.runs[0]) == ([0, 25, 75, 150, 200], [0, 1, 2, 3, 3])


def test_a_story_is_written_beside_the_records_and_read_back(story, tmp_path):
    write_story(tmp_path, "poet-hurdles-seed0", None)
    assert list(tmp_path.iterdir()) == []
    write_story(tmp_path, "poet-hurdles-seed0", story)
    assert (tmp_path / "poet-hurdles-seed0.html").read_text().startswith("<!doctype html>")
    record = json.loads((tmp_path / "poet-hurdles-seed0.json").read_text())
    back = from_record(record)
    assert jsonable(as_record(back)) == jsonable(as_record(story)) == record
    # A picture needs no agents.
    assert len(poet.tree_figure(back).axes) == 2
    with pytest.raises(TypeError, match="no page for a dict"):
        write_story(tmp_path, "x", {})
