"""A sweep's parts that need no process: frames, jobs, what a worker tells, and what is tried again."""

import io
from dataclasses import replace

import torch
from hypothesis import given
from hypothesis import strategies as st

from fedskew import Run, Store, sweep
from fedskew.store import checkpoints
from fedskew.store.hold import take
from fedskew.sweep import wire
from fedskew.sweep.agenda import Agenda, Failed, Try
from fedskew.sweep.worker import Work

SMALL = {"model": "softmax", "examples": 300, "lr": 0.3, "clients": 5, "partition": "classes:2"}


@given(st.dictionaries(st.text(), st.floats(allow_nan=False) | st.text()), st.lists(st.binary()))
def test_a_frame_gives_back_what_it_was_given(header, blobs):
    header.pop("sizes", None)
    data = wire.frame(header, *blobs)
    assert wire.parse(data) == (header, blobs)
    pipe = io.BytesIO()
    wire.send(pipe, data)
    whole = pipe.getvalue()
    assert wire.receive(io.BytesIO(whole)) == data
    assert wire.receive(io.BytesIO(whole[:-1])) is None


def test_a_job_survives_its_journey(tmp_path):
    store = Store()
    first = store.create(Run(**SMALL, rounds=3, algorithm="scaffold", divergence=True))
    rows = store.advance(first, checkpoint_seconds=0)
    next(rows)
    rows.close()
    second = store.create(Run(**SMALL, rounds=3, start=f"run:{first}"))
    with take(store, [first, second]) as held:
        job = wire.Job.of(held, held.how("cpu", "loop", None), 7.0, 2)
    found = wire.Job.unpacked(job.packed())
    assert (found.ids, found.runs, found.prints) == (job.ids, job.runs, job.prints)
    assert (found.how, found.checkpoint_seconds, found.threads) == (job.how, 7.0, 2)
    assert [at.first_round for at in found.beginnings] == [2, 1]
    assert checkpoints.pack(found.beginnings[0].state) == checkpoints.pack(job.beginnings[0].state)
    assert found.beginnings[1].state is None
    torch.testing.assert_close(found.beginnings[1].initial, job.beginnings[1].initial, rtol=0, atol=0)


def test_work_tells_every_row_states_when_due_and_the_rest_when_halted():
    store = Store()
    ids = [store.create(Run(**SMALL, rounds=3, seed=seed)) for seed in (0, 1)]
    with take(store, ids) as held:
        job = wire.Job.of(held, held.how("cpu", None, None), 1000.0, 1)
        work = Work(job, held.checked(None))
    said = [wire.parse(message) for message in work.messages()]
    assert list(said[0][0]) == ["place", "where"]
    assert said[-1][0] == {"done": True}
    told = [(h["run"], h["row"]["round"], bool(blob)) for h, (blob,) in said[1:-1]]
    assert sorted(told) == [(i, t, t == 3) for i in (0, 1) for t in (1, 2, 3)]
    assert work.rest() == []
    work = Work(job, held.checked(None))
    messages = work.messages()
    for _ in range(4):  # the place, two first rounds and one second
        next(messages)
    rest = [wire.parse(message) for message in work.rest()]
    assert [(h["run"], h["row"]["round"], bool(blob)) for h, (blob,) in rest] == [(0, 2, True), (1, 1, True)]


def test_a_worker_refuses_other_data_than_the_run_was_started_with():
    store = Store()
    with take(store, [store.create(Run(**SMALL, rounds=1))]) as held:
        data = held.checked(None)
        job = wire.Job.of(held, held.how("cpu", None, None), 5.0, None)
    other = replace(data, y=data.y[::-1])
    ((said, _),) = (wire.parse(message) for message in Work(job, other).messages())
    assert said["mistake"]
    assert "data and partition changed since its start" in said["failed"]


def test_what_is_tried_again_and_what_is_not():
    agenda = Agenda([sweep.Group([], ["a", "b"], 2), sweep.Group([], ["c"], 1)], retries=1)
    first = agenda.next()
    assert agenda.failed(first, ["a", "b"], "why", mistake=False).next == "try 2 of 2"
    second = agenda.next()
    assert second == Try(["a", "b"], 2)
    assert agenda.failed(second, ["b"], "why", mistake=False).next == "each is tried alone"
    alone = agenda.next()
    assert agenda.failed(alone, ["b"], "why", mistake=False) == Failed(["b"], "why", "given up")
    assert agenda.failed(agenda.next(), ["c"], "why", mistake=True).next == "given up"
    assert agenda.next() is None
