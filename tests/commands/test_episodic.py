"""What a table per action cannot do is said in one sentence, before anything is written."""

import pytest

from tests.commands.bad_lines import refused_in_one_sentence


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("train catch --rule mfec --rule-options rows=0", "rule 'mfec': rows must be at least 1, not 0"),
        ("train catch --rule nec --rule-options rows=0", "rule 'nec': rows must be at least 1, not 0"),
        ("train catch --rule nec --rule-options neighbours=0", "rule 'nec': neighbours must be at least 1, not 0"),
        ("train catch --rule nec --rule-options rows=10", "50 neighbours cannot be found in a table of 10 rows"),
        ("train catch/several --rule nec", "nec keeps a table per action, so an action must be one choice, not 2 at once"),
        ("train point --rule mfec", "mfec keeps a table per action, so an action must be one choice, not 2 at once"),
        ("train pendulum/continuous --rule nec --action-distribution beta", "not real: --action-distribution bins"),
        ("train catch --rule dqn --capacity 0", "capacity must be at least 1, not 0"),
    ],
)
def test_bad_lines(line, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    refused_in_one_sentence(line, words, tmp_path, capsys)
