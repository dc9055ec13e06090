"""Commit, abort and recovery of prepared transactions, from their durable names. Driver.

A commit is one EndTxn request to the transaction's coordinator. Its answer alone does not always say
what happened: 90 (fenced) comes after a time-out, and also after a commit that somebody has followed
with a new producer. Then the marker decides.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from onceonly import background
from onceonly.errors import ConfigurationError, InDoubtError, UnavailableError
from onceonly.model import AlreadyCommitted, Committed, Lost, Outcome, RetryLater, Unknown
from onceonly.ports import Leftover
from onceonly.ports.standing import Stands
from onceonly.sinks.kafka.outcomes import marker, own_rows, standing
from onceonly.sinks.kafka.prepared import Prepared
from onceonly.sinks.kafka.producers.transaction import init_request
from onceonly.sinks.kafka.wire import names
from onceonly.sinks.kafka.wire.admin import TRANSACTION, says_later
from onceonly.sinks.kafka.wire.answers import (
    INVALID_TIMEOUT,
    LEADERLESS,
    NONE,
    STILL_ENDING,
    NotAnsweredError,
    PutOffError,
    refuse_forbidden,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from onceonly.model import Handle
    from onceonly.sinks.kafka.wire.admin import Admin
    from onceonly.sinks.kafka.wire.end_txn import EndTxn

log = logging.getLogger("onceonly")

_STABLE_S = 5.0
_FENCE_S = 30.0
_LOOK_UPS_MAX = 16
_LIST_S = 10.0
_BROKERS_MAX = 8
# Only needed in the request: the producer that takes the id next sets its own.
_FENCE_TIMEOUT_MS = 1000
# {run}.{worker}.{number}, after the query's and sink's own part
_ID_PARTS = 3


def commit(admin: Admin, handle: Handle, *, is_first: bool = False) -> Outcome:
    """Make a prepared transaction visible. Any thread, any process; idempotent, repeatable.

    Somebody may have aborted a part of it by hand, which its coordinator does not know of: it would commit the rest.
    So the partitions are asked before, unless ``is_first``: it is the first try, and right after the decision.
    Raises ``ConfigurationError`` for another cluster and for missing permissions.
    """
    prepared = Prepared.of(handle)
    if not is_first and (seen := _look(admin, prepared)) is not None:
        return seen
    answer: Any
    try:
        require_cluster(admin, prepared.cluster_id, prepared.transactional_id)
        answer = admin.to_coordinator(TRANSACTION, prepared.transactional_id, _end(prepared))
    except NotAnsweredError as error:
        answer = error
    return _judge(admin, prepared, answer)


def commit_many(admin: Admin, handles: Sequence[Handle], *, first: Collection[str] = ()) -> list[Outcome]:
    """As ``commit``, of many: one look for their coordinators, all requests on the wire, then one wait.

    ``first`` are the tokens of those that are tried for the first time.
    Raises as ``commit`` does; then it cannot be told what became of the others, and each may be asked again.
    """
    many = [Prepared.of(handle) for handle in handles]
    if len({each.transactional_id for each in many}) < len(many):
        raise InDoubtError(
            "Two handles of one epoch name the same transactional id.",
            next_step="report a defect in onceonly",
        )

    def look(each: Prepared) -> Outcome | None:
        return None if each.token in first else _look(admin, each)

    # None where nothing speaks against the commit.
    seen: list[Outcome | None] = [None] * len(many)
    if any(each.token not in first for each in many):
        seen = background.spread("onceonly-standing", look, many, threads_max=_LOOK_UPS_MAX)
    open_ = [each for each, outcome in zip(many, seen, strict=True) if outcome is None]
    told = iter(_commit_all(admin, open_))
    return [next(told) if outcome is None else outcome for outcome in seen]


def _commit_all(admin: Admin, many: Sequence[Prepared]) -> list[Outcome]:
    answers = _end_all(admin, many)

    def outcome(each: Prepared) -> Outcome:
        return _judge(admin, each, answers[each.transactional_id])

    if all(isinstance(each, NotAnsweredError) or each.error_code == NONE for each in answers.values()):
        return [outcome(each) for each in many]
    # A look-up takes seconds where a transaction is pending; none waits for another's.
    return background.spread("onceonly-look-up", outcome, many, threads_max=_LOOK_UPS_MAX)


def _look(admin: Admin, prepared: Prepared) -> Outcome | None:
    """See whether a transaction that its coordinator holds open still stands in its partitions; None where it does.

    What has fallen in one of them is aborted in all, so that its rows are written again, all of them and once.
    """
    name = f"transaction {prepared.transactional_id}"
    try:
        require_cluster(admin, prepared.cluster_id, prepared.transactional_id)
        fallen = standing.fallen(admin, prepared)
    except NotAnsweredError as error:
        return RetryLater(f"{name}: {error}")
    if not fallen:
        return None
    found = _fenced(admin, prepared, name)
    if isinstance(found, RetryLater):
        return found
    if found == prepared.predecessor:
        return _unless_there(
            admin,
            prepared,
            f"{name}: {fallen}; the rest of it is aborted now, and group {prepared.group} still shows "
            f"{prepared.predecessor}, the marker from before it began",
        )
    if found is None:
        return _by_its_rows(admin, prepared, f"{name}: {fallen}")
    return Unknown(
        f"{name}: {fallen}; and group {prepared.group} shows {found}: "
        + ("somebody has committed the rest meanwhile" if found == prepared.token else "not its predecessor")
    )


def _end_all(admin: Admin, many: Sequence[Prepared]) -> dict[str, Any]:
    """Send EndTxn of all, and return the answers by transactional id."""
    try:
        for cluster_id, transactional_id in {each.cluster_id: each.transactional_id for each in many}.items():
            require_cluster(admin, cluster_id, transactional_id)
        admin.guess_coordinators(each.transactional_id for each in many)
        return admin.to_coordinators(TRANSACTION, {each.transactional_id: _end(each) for each in many})
    except NotAnsweredError as error:
        return dict.fromkeys((each.transactional_id for each in many), error)


def _judge(admin: Admin, prepared: Prepared, answer: Any) -> Outcome:  # noqa: ANN401  kafka-python is untyped
    """Tell what an answer to EndTxn, or that there was none, says of a transaction."""
    if isinstance(answer, NotAnsweredError):
        refuse_forbidden(getattr(answer.__cause__, "errno", 0) or 0, prepared.transactional_id)
        # Whether or not the request arrived: sending it again is harmless, and tells.
        return RetryLater(f"{prepared.transactional_id}: {answer}")
    code: int = answer.error_code
    refuse_forbidden(code, prepared.transactional_id)
    if code == NONE:
        return Committed()
    if says_later(admin, TRANSACTION, prepared.transactional_id, code):
        if code == STILL_ENDING and _shows_its_token(admin, prepared):
            return AlreadyCommitted()
        return RetryLater(f"{prepared.transactional_id}: error {code}")
    return _look_up(admin, prepared, code)


def abort(admin: Admin, handle: Handle) -> None:
    """Abort and fence: after it, nobody can finish this transaction. Driver; idempotent.

    Raises ``UnavailableError``, ``ConfigurationError``.
    """
    transactional_id = str(handle.data["transactional_id"])
    cluster_id = str(handle.data["cluster_id"])
    admin.patiently(
        _FENCE_S,
        f"abort of {transactional_id}",
        lambda: require_cluster(admin, cluster_id, transactional_id),
    )
    fence(admin, transactional_id, _FENCE_TIMEOUT_MS)


def fence(admin: Admin, transactional_id: str, timeout_ms: int) -> int:
    """Take the id: InitProducerId aborts what is open on it and outdates its former producer.

    Gives 0, or 50 where ``timeout_ms`` is above the broker's maximum.
    """
    request = init_request(transactional_id, timeout_ms)

    def attempt() -> int:
        code: int = admin.to_coordinator(TRANSACTION, transactional_id, request).error_code
        refuse_forbidden(code, transactional_id)
        if says_later(admin, TRANSACTION, transactional_id, code) or code not in {NONE, INVALID_TIMEOUT}:
            raise PutOffError(code)
        return code

    return admin.patiently(_FENCE_S, f"fencing {transactional_id}", attempt)


def recover(admin: Admin, prefix: str) -> list[Leftover]:
    """List the open transactions whose id is ``{prefix}{run}.{worker}.{number}``. Driver.

    Raises ``UnavailableError`` rather than give a part of them.
    """
    return admin.patiently(_LIST_S, f"list of transactions {prefix}*", lambda: _recover(admin, prefix))


def _recover(admin: Admin, prefix: str) -> list[Leftover]:
    found = [
        (broker, state.transactional_id)
        for broker, state in listed(admin, states=("Ongoing",), what=prefix)
        if state.transactional_id.startswith(prefix)
        and len(state.transactional_id.removeprefix(prefix).split(".")) == _ID_PARTS
    ]
    for broker, name in found:  # saves a look-up for each; should it move, its new place is looked up
        admin.remember(TRANSACTION, name, broker)
    return [
        Leftover(transaction=name, data={"transactional_id": name, "cluster_id": admin.cluster_id})
        for _, name in found
    ]


def listed(admin: Admin, *, states: Sequence[str], what: str) -> list[tuple[int, Any]]:
    """Ask all coordinators for their transactions in these states, or in any; each with its broker.

    Raises ``NotAnsweredError`` rather than give a part of them, ``ConfigurationError`` that names ``what``.
    """
    from onceonly.sinks.kafka.wire.requests import ListTransactionsRequest, metadata

    topology = admin.send(metadata(["__transaction_state"]))
    brokers = {broker.node_id for broker in topology.brokers}
    # Each broker lists the ids that it coordinates. One that is down takes its ids along unseen, unless
    # another has taken over; without permission to see the topic, this cannot be told.
    for partition in topology.topics[0].partitions:
        if partition.leader_id not in brokers:
            raise PutOffError(LEADERLESS, f"__transaction_state-{partition.partition_index}")
    partitions = sorted(topology.topics[0].partitions, key=lambda each: each.partition_index)
    admin.learn_leaders([partition.leader_id for partition in partitions])

    def of_broker(broker: int) -> list[tuple[int, Any]]:
        answer = admin.send(
            ListTransactionsRequest(state_filters=list(states), producer_id_filters=[], max_version=0), broker
        )
        if answer.error_code != NONE:
            refuse_forbidden(answer.error_code, what)
            raise PutOffError(answer.error_code, f"broker {broker}")
        return [(broker, state) for state in answer.transaction_states]

    shares = background.spread("onceonly-list", of_broker, sorted(brokers), threads_max=_BROKERS_MAX)
    return [each for share in shares for each in share]


def require_cluster(admin: Admin, cluster_id: str, transaction: str) -> None:
    """See that the cluster is the one that a transaction was prepared in. Raises ``ConfigurationError``."""
    connected = admin.cluster_id
    if connected != cluster_id:
        raise ConfigurationError(
            f"Transaction {transaction} was prepared in Kafka cluster {cluster_id}, and the servers "
            f"given now belong to cluster {connected}. Nothing was sent.",
            next_step="point kafka.bootstrap.servers back to the former cluster until it is resolved",
        )


def _end(prepared: Prepared) -> EndTxn | Any:  # noqa: ANN401  kafka-python is untyped
    if names.missing():
        return _plain_end(prepared)
    from onceonly.sinks.kafka.wire.end_txn import EndTxn

    # The version is the handle's: after a v4 commit, a v5 request would be answered wrongly (measured).
    return EndTxn(
        prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        version=prepared.end_txn_version,
    )


def _plain_end(prepared: Prepared) -> Any:  # noqa: ANN401  kafka-python is untyped
    """Return the same request as kafka-python spells it."""
    from onceonly.sinks.kafka.wire.requests import EndTxnRequest

    version = prepared.end_txn_version
    return EndTxnRequest(
        transactional_id=prepared.transactional_id,
        producer_id=prepared.producer_id,
        producer_epoch=prepared.producer_epoch,
        committed=True,
        min_version=version,
        max_version=version,
    )


def _fenced(admin: Admin, prepared: Prepared, name: str) -> str | RetryLater | None:
    """Fence a transaction, and only then read the marker: what it shows of this one stays so."""
    try:
        fence(admin, prepared.transactional_id, _FENCE_TIMEOUT_MS)
    except UnavailableError as error:
        return RetryLater(f"{name}: {error.what}")
    return _stable(admin, prepared)


def _look_up(admin: Admin, prepared: Prepared, code: int) -> Outcome:
    """Ask the marker what became of a transaction that EndTxn no longer takes."""
    name = f"transaction {prepared.transactional_id}, EndTxn error {code}"
    found = _stable(admin, prepared)
    if isinstance(found, RetryLater):
        return found
    if found == prepared.predecessor:
        # Not committed so far. Nobody must be able to commit it between this word and the next try.
        found = _fenced(admin, prepared, name)
        if isinstance(found, RetryLater):
            return found
        if found == prepared.predecessor:
            return _unless_there(
                admin,
                prepared,
                f"{name}; fenced, and group {prepared.group} still shows {prepared.predecessor}, "
                f"the marker from before it began",
            )
    if found == prepared.token:
        return AlreadyCommitted()
    if found is None:
        return _by_its_rows(admin, prepared, name)
    return Unknown(
        f"{name}; group {prepared.group} on {prepared.marker_topic}-0 shows marker {found}, neither its own "
        f"{prepared.token} nor its predecessor {prepared.predecessor}"
    )


def _unless_there(admin: Admin, prepared: Prepared, proof: str) -> Outcome:
    """Say that a transaction is lost, by a marker that proves it, unless its own rows are there: they would come twice.

    Brokers that lose their power together keep of each partition what was on its disk. So the end of the rows may be
    there, and neither the marker nor what their coordinator had decided.
    """
    try:
        found = own_rows.ends(admin, prepared)
    except NotAnsweredError as error:
        return RetryLater(f"{proof}; and its rows: {error}")
    if Stands.COMMITTED not in found:
        return Lost(proof)
    there = f"its rows are committed, as at {found.pop(Stands.COMMITTED)}"
    if found:
        return Unknown(f"{proof}; but {there}, and not all: {', '.join(found.values())}")
    log.warning("%s; but %s: the brokers have lost what told of it.", proof, there)
    return AlreadyCommitted()


def _by_its_rows(admin: Admin, prepared: Prepared, name: str) -> Outcome:
    """Ask the rows of a transaction what became of it, as nothing else is left that could tell."""
    name = (
        f"{name}; group {prepared.group} on {prepared.marker_topic}-0 shows no marker (group or topic deleted, or "
        "expired)"
    )
    try:
        stands, told = own_rows.ended(admin, prepared)
        if stands is Stands.GONE:
            fence(admin, prepared.transactional_id, _FENCE_TIMEOUT_MS)
    except NotAnsweredError as error:
        return RetryLater(f"{name}; and its rows: {error}")
    except UnavailableError as error:
        return RetryLater(f"{name}: {error.what}")
    if stands is Stands.COMMITTED:
        return AlreadyCommitted()
    return Lost(f"{name}; fenced, and {told}") if stands is Stands.GONE else Unknown(f"{name}, and {told}")


def _shows_its_token(admin: Admin, prepared: Prepared) -> bool:
    """Say whether the marker is visible already: then the coordinator's decision is durable, and it was to commit.

    A coordinator that loads its state anew while markers are on their way can forget those that have arrived
    (KAFKA-16352, seen with 3.3 when another broker had died). The rows are there then, and EndTxn is answered 51 until
    it loads again, which may be never.
    """
    try:
        return marker.read_once(admin, prepared.group, prepared.marker_topic, stable=False) == prepared.token
    except (NotAnsweredError, UnavailableError):
        return False


def _stable(admin: Admin, prepared: Prepared) -> str | RetryLater | None:
    """Read the marker; what is visible and ours proves the commit even while a twin is pending."""
    group, topic = prepared.group, prepared.marker_topic
    try:
        return marker.read(admin, group, topic, stable=True, seconds=_STABLE_S)
    except UnavailableError as error:
        try:
            visible = marker.read(admin, group, topic, stable=False, seconds=_STABLE_S)
        except UnavailableError:
            visible = None
        return prepared.token if visible == prepared.token else RetryLater(error.what)
