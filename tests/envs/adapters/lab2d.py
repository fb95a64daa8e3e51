"""DeepMind Lab2D, the relative of DeepMind Lab that can be installed, connected as docs/adapters/dm_env.md connects Lab."""

import dm_env
import dmlab2d
from dmlab2d import runfiles_helper


class PushBox(dm_env.Environment):
    """Sokoban seen from above; Lab2D's action is a dictionary of one entry, here it is one choice."""

    def __init__(self, seed, frames=120):
        lab = dmlab2d.Lab2d(runfiles_helper.find(), {"levelName": "pushbox", "episodeLengthFrames": str(frames)})
        self.environment = dmlab2d.Environment(lab, ["WORLD.RGB"], seed)

    def action_spec(self):
        return self.environment.action_spec()["MOVE"]

    def observation_spec(self):
        return self.environment.observation_spec()

    def reset(self):
        return self.environment.reset()

    def step(self, action):
        return self.environment.step({"MOVE": action})

    def close(self):
        self.environment.close()
