"""Trains the groups of a plan: here, or by the hands of a crew; this process is the one that writes to the store."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

from fedskew.engine.choose import Engine, Precision
from fedskew.errors import FedskewError
from fedskew.rounds import Row
from fedskew.store import Store
from fedskew.store.hold import Hold, take
from fedskew.store.recording import begin
from fedskew.sweep import wire
from fedskew.sweep.agenda import Agenda, Begun, Event, Failed, Trained, Try
from fedskew.sweep.groups import Group
from fedskew.sweep.inbox import Inbox

PATIENCE = 10.0  # seconds for halted workers to tell what would be lost
LOOK = 1.0  # seconds between looks for hands that have become free elsewhere


class Hand(Protocol):
    """One worker. What it says comes to the crew's inbox: messages, and a string when it is gone: why."""

    def give(self, job: wire.Job) -> None:
        """Begin a job."""

    def halt(self) -> None:
        """End, but first tell what would be lost."""

    def kill(self) -> None:
        """End now."""


class Crew(Protocol):
    """Workers of one kind."""

    inbox: Inbox
    device: str  # as its workers see it
    threads: int | None  # for each of them, on a CPU

    @property
    def size(self) -> int:
        """Workers that there is room for."""

    def hire(self, busy: int) -> Hand | None:
        """One more worker, if there is room beside those that are busy."""

    def close(self) -> None:
        """End every worker."""


def here(store: Store, groups: Sequence[Group], *, retries: int = 2, **how: Any) -> Generator[Event, None, None]:
    """Train one group after another in this process; `how` are the arguments of `Store.advance_together`."""
    agenda = Agenda(groups, retries)
    while (at := agenda.next()) is not None:
        try:
            for id, row in store.advance_together(at.ids, **how):
                yield Trained(id, row)
        except Exception as e:
            why = str(e) if isinstance(e, FedskewError) else f"{type(e).__name__}: {e}"
            left = [id for id in at.ids if not store.find(id).over]
            yield agenda.failed(at, left, why, mistake=isinstance(e, FedskewError))


@dataclass
class Shift:
    """A try in a worker's hands, and what the store holds for it meanwhile."""

    at: Try
    held: Hold
    store: ExitStack = field(repr=False)
    begun: bool = False

    def receive(self, header: dict[str, Any], blobs: list[bytes]) -> Trained:
        """Keep what a worker told of a run."""
        row = Row.from_record(header["row"])
        self.held.recordings[header["run"]].receive(row, *blobs)
        return Trained(self.held.ids[header["run"]], row)

    def end(self, reason: BaseException | None = None) -> list[str]:
        """Let go of the runs; gives those that were not over, which they are if nothing went wrong."""
        with self.store:
            left = [recording for recording in self.held.recordings if not recording.ended]
            for recording in left:
                if reason is None:  # it had been stopped between its last row and the word "finished"
                    recording.end("finished", "")
                else:
                    recording.stop(reason)
            return [recording.run for recording in left]


def abroad(
    store: Store,
    groups: Sequence[Group],
    crew: Crew,
    *,
    retries: int = 2,
    checkpoint_seconds: float = 5.0,
    engine: Engine | None = None,
    precision: Precision | None = None,
) -> Generator[Event, None, None]:
    """Train groups in the workers of a crew, as many at once as it has room for."""

    def job(held: Hold) -> wire.Job:
        return wire.Job.of(held, held.how(crew.device, engine, precision), checkpoint_seconds, crew.threads)

    agenda, idle = Agenda(groups, retries), list[Hand]()
    shifts: dict[Hand, Shift] = {}
    try:
        while True:
            while agenda.waiting and (hand := idle.pop() if idle else crew.hire(len(shifts))):
                if (started := _start(store, agenda, hand, job)) is None:
                    idle.append(hand)
                elif isinstance(started, Failed):
                    idle.append(hand)
                    yield started
                else:
                    shifts[hand] = started
            if not shifts and not agenda.waiting:
                return
            try:
                hand, said = crew.inbox.get(timeout=LOOK)
            except queue.Empty:
                continue
            if hand not in shifts:  # an idle one is gone
                idle = [other for other in idle if other is not hand]
                continue
            shift = shifts[hand]
            if isinstance(said, str):
                del shifts[hand]
                yield _failed(agenda, shift, said, mistake=False)
                continue
            header, blobs = wire.parse(said)
            if "row" in header:
                yield shift.receive(header, blobs)
            elif "place" in header:
                shift.begun = True
                shift.held.place(header["place"])
                yield Begun(shift.held.ids, header["where"])
            else:
                del shifts[hand]
                if "failed" in header and not header["mistake"]:
                    hand.kill()  # a GPU may be of no use to a process after an error; the next try gets a fresh one
                else:
                    idle.append(hand)
                if "failed" in header:
                    yield _failed(agenda, shift, header["failed"], mistake=header["mistake"])
                else:
                    shift.end()
    except BaseException as e:
        _halt(crew, shifts)
        for shift in shifts.values():
            shift.end(e)
        raise
    finally:
        crew.close()


def _start(store: Store, agenda: Agenda, hand: Hand, job: Callable[[Hold], wire.Job]) -> Shift | Failed | None:
    """Give a hand the next try; None where its runs are over by now."""
    at = agenda.next()
    assert at is not None
    with ExitStack() as held_open:
        try:
            held = held_open.enter_context(take(store, at.ids))
        except FedskewError as e:  # another process trains one of them
            return agenda.failed(at, at.ids, str(e), mistake=True)
        if not held.runs:
            return None
        begin(held.recordings, held.beginnings)
        hand.give(job(held))
        return Shift(at, held, held_open.pop_all())


def _failed(agenda: Agenda, shift: Shift, why: str, *, mistake: bool) -> Failed:
    return agenda.failed(shift.at, shift.end(RuntimeError(why)), why, mistake=mistake)


def _halt(crew: Crew, shifts: dict[Hand, Shift]) -> None:
    """Ask all workers for what would be lost and keep it; what does not come in time is trained again some day."""
    crew.inbox.again()  # whatever ends all this may have struck before the last row was kept
    waiting = {hand for hand, shift in shifts.items() if shift.begun}
    for hand in waiting:
        hand.halt()
    until = time.monotonic() + PATIENCE
    while waiting and (left := until - time.monotonic()) > 0:
        try:
            hand, said = crew.inbox.get(timeout=left)
        except queue.Empty:
            return
        if isinstance(said, str):
            waiting.discard(hand)
        elif hand in waiting and "row" in (parsed := wire.parse(said))[0]:
            try:
                shifts[hand].receive(*parsed)
            except FedskewError:  # of a full disk, say, which may be why all this ends
                waiting.discard(hand)  # a checkpoint that comes after this row would hide that it is missing
