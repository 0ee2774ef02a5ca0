"""What is told of what was found: in words, in 80 columns, and as code that can be pasted."""

from __future__ import annotations

import ast
import json

import pytest

from swift_loader.tuning.looks import Choice, Evidence, Failure, Look
from swift_loader.tuning.physics import Machine
from swift_loader.tuning.policy import Task
from swift_loader.tuning.tuning import Subject, told

TASK = Task(machine=Machine(2.0), base=Choice(1), consumer_s=0.04, batch_size=64)
SUBJECT = Subject.of(type("Images", (), {}), {"folder": "train"})


def at(rate: float, workers: int) -> Look:
    wait_s = max(0.0, 10 - 0.4 * rate)
    return Look(int(10 * rate), 10.0, wait_s, made_s=8.0 * workers, samples=int(640 * rate), cpu_s=7.0 * workers)


def seen(*rates: float) -> Evidence:
    evidence = Evidence()
    for workers, rate in enumerate(rates, 1):
        for share in (1.0, 0.99):
            evidence.add(Choice(workers), at(share * rate, workers), is_hurried=False)
    return evidence


def code_of(text: str) -> ast.Call:
    (statement,) = ast.parse(text).body
    assert isinstance(statement, ast.Expr)
    assert isinstance(statement.value, ast.Call)
    return statement.value


def test_what_keeps_up_is_told_with_its_figures():
    found = told(seen(12.5, 24.8, 24.9), TASK, SUBJECT, Choice(2))
    assert found.is_whole
    assert found.verdict.startswith("2 workers keep up with steps of 40 ms: 24.6 batches/s (1,579 samples/s)")
    assert found.settings == {
        "worker_per_consumer": 2, "worker_threads": 1, "data_queue_size": 10, "message_queue_size": 10,
    }  # fmt: skip
    lines = str(found).splitlines()
    assert max(map(len, lines)) <= 80
    assert [line for line in lines if line.startswith(">")] == [
        line for line in lines if line.split()[:2] == [">", "2"]
    ]


@pytest.mark.parametrize(
    ("rates", "chosen", "starved", "why"),
    [
        ((12.5, 24.8, 25.2), 2, {}, "the consumer waits for neither, and this is less"),
        ((12.5, 25.2, 24.8), 3, {2: 0.2}, "the consumer waits less"),
        ((10.0, 18.0, 18.3), 2, {}, "this is less, and so small a gain may be noise"),
        ((10.0, 18.3, 18.0), 3, {}, "it did better where both were looked at in turns"),
    ],
)
def test_it_is_said_why_what_was_fastest_was_not_chosen(
    rates: tuple[float, ...], chosen: int, starved: dict[int, float], why: str
):
    evidence = seen(*rates)
    for workers, share in starved.items():
        looks = evidence.looks[Choice(workers)]
        looks[:] = [look._replace(wait_s=share * look.seconds) for look in looks]
    found = told(evidence, TASK, SUBJECT, Choice(chosen))
    (note,) = [note for note in found.notes if "gave more" in note]
    rate = evidence.rate(Choice(5 - chosen))
    assert note == f"{5 - chosen} workers gave more ({rate:.1f} batches/s). The answer is {chosen} workers since {why}."
    assert not [note for note in told(seen(*sorted(rates)), TASK, SUBJECT, Choice(3)).notes if "gave more" in note]


@pytest.mark.parametrize(("cpu_s", "remedy"), [(7.0, "2 cores cannot do more"), (0.4, "waits for (disk, network)")])
def test_where_nothing_keeps_up_it_is_said_why(cpu_s: float, remedy: str):
    evidence = seen(10.0, 18.0, 18.1)
    for looks in evidence.looks.values():
        looks[:] = [look._replace(cpu_s=cpu_s) for look in looks]
    found = told(evidence, TASK, SUBJECT, Choice(2))
    assert found.verdict.startswith("Nothing keeps up with steps of 40 ms here: 2 workers gave 17.9 batches/s")
    assert remedy in found.verdict


def test_what_was_not_finished_is_not_told_as_an_answer():
    found = told(seen(12.0, 20.0), TASK, SUBJECT, None)
    assert not found.is_whole
    assert found.choice == Choice(2)
    assert found.verdict.startswith("Not to its end; so far 2 workers gave")
    assert str(told(Evidence(), TASK, SUBJECT, None)) == "Nothing was measured yet."
    one = Evidence(hurried={Choice(1): [at(5.0, 1)]})
    assert str(told(one, TASK, SUBJECT, None)).startswith("A worker takes 160 ms for a batch")


def test_the_code_is_a_call_that_can_be_pasted():
    subject = SUBJECT._replace(consumers=4, arguments="collate_fn=collate, start_method='spawn'")
    call = code_of(told(seen(12.5, 24.8), TASK, subject, Choice(2, 8, 40)).code)
    assert [ast.unparse(word) for word in (call.func, *call.args)] == ["SwiftLoader", "Images", "{'folder': 'train'}"]
    assert {word.arg: ast.unparse(word.value) for word in call.keywords} == {
        "batch_size": "64", "nb_consumer": "4", "worker_per_consumer": "2", "worker_threads": "8",
        "data_queue_size": "40", "collate_fn": "collate", "start_method": "'spawn'",
    }  # fmt: skip


@pytest.mark.parametrize("kwargs", [{"files": ["x" * 50] * 9}, {"what": object()}])
def test_what_cannot_be_written_is_left_to_the_reader(kwargs: dict):
    call = code_of(told(seen(24.9), TASK, Subject.of(lambda: None, kwargs), Choice(1)).code)
    assert [ast.unparse(word) for word in call.args] == ["dataset_class", "dataset_kwargs"]


def test_threads_failures_and_noise_are_told():
    evidence = seen(12.5, 24.8)
    evidence.failures[Choice(1, 2)] = Failure("fetch of sample 3 raised RuntimeError: not in threads")
    notes = "\n".join(told(evidence, TASK, SUBJECT, Choice(2, 8)).notes)
    assert "swift-loader check" in notes
    assert "1 worker, 2 threads cannot be had: fetch of sample 3 raised" in notes
    assert "something else uses this machine" not in notes
    evidence.add(Choice(2), at(9.0, 2), is_hurried=False)
    evidence.add(Choice(2), at(15.0, 2), is_hurried=False)
    assert "something else uses this machine" in "\n".join(told(evidence, TASK, SUBJECT, None).notes)


def test_one_of_several_consumers_is_told_what_share_was_measured():
    found = told(seen(12.5, 24.8), TASK, SUBJECT._replace(consumers=4), Choice(2))
    assert "Measured for one of 4 consumers, on its share of this machine: 2 cores." in str(found)


def test_all_of_it_is_json():
    found = told(seen(12.5, 24.8), TASK, SUBJECT, Choice(2))
    read = json.loads(json.dumps(found.to_dict()))
    assert read["settings"]["worker_per_consumer"] == 2
    assert [row["choice"]["workers"] for row in read["rows"]] == [1, 2]
    assert read["is_whole"] is True
