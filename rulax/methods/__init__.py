"""The meta-RL family: each algorithm is one short file here, and its experiments stand under the same name in `experiments/`."""
