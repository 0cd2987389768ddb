"""Every error that coterie raises on purpose, as one tree.

::

    CoterieError
     +-- InputError (also ValueError)      a value that was given is wrong
     |    +-- DataError                    rows, labels, client ids
     |    +-- ParameterError               a hyper-parameter or an argument
     |    +-- ConfigError                  a configuration file or a --set
     +-- InputTypeError (also TypeError)   a thing of the wrong kind was given
     +-- DatasetError (also OSError)       a data set that cannot be found, fetched or read
     +-- RunFolderError (also OSError)     a run folder that cannot be written or read
     |    +-- CheckpointError              a checkpoint that is damaged or belongs elsewhere
     +-- ExchangeError                     clients and server could not finish an exchange
     |    +-- ClientError                  a client's half failed; carries client, round and phase
     |    +-- QuorumError                  fewer replies than needed, after all retries
     |    +-- ProtocolError                a message that cannot be read or belongs elsewhere
     +-- ContractError                     an algorithm breaks the contract (`check_algorithm`)

A message says what was given, what was expected, and what to do.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coterie.protocol import Traffic


class CoterieError(Exception):
    """The root of every error that coterie raises on purpose."""


class InputError(CoterieError, ValueError):
    """A value that was given is wrong."""


class DataError(InputError):
    """Rows, labels or client ids that cannot be used."""


class ParameterError(InputError):
    """A hyper-parameter or an argument outside of what is allowed."""


class ConfigError(InputError):
    """A configuration that cannot be used: unknown keys, wrong values, contradictions."""


class InputTypeError(CoterieError, TypeError):
    """A thing of the wrong kind was given."""


class DatasetError(CoterieError, OSError):
    """A data set that cannot be found, fetched or read."""


class RunFolderError(CoterieError, OSError):
    """A run folder that cannot be written or read."""


class CheckpointError(RunFolderError):
    """A checkpoint that is damaged, or belongs to another run."""


class ExchangeError(CoterieError):
    """Clients and server could not finish an exchange."""


class ClientError(ExchangeError):
    """A client's half of an algorithm failed.

    Attributes
    ----------
    client : hashable
        The id of the client whose rows raise the error.
    round : int
        The paper's round in which it happened (0 while starting).
    phase : str
        The phase of the algorithm.
    """

    def __init__(self, message: str, *, client: Hashable, round: int, phase: str) -> None:  # noqa: A002
        super().__init__(f"client {client!r}, round {round}, phase {phase!r}: {message}")
        self.message = message
        self.client = client
        self.round = round
        self.phase = phase

    def __reduce__(self) -> tuple[object, ...]:
        again = partial(ClientError, client=self.client, round=self.round, phase=self.phase)
        return again, (self.message,)


class QuorumError(ExchangeError):
    """Fewer clients replied than the exchange needs, after all retries.

    Attributes
    ----------
    traffic : Traffic
        What crossed the network in vain.
    """

    def __init__(self, message: str, traffic: Traffic) -> None:
        super().__init__(message)
        self.traffic = traffic

    def __reduce__(self) -> tuple[object, ...]:
        return QuorumError, (str(self), self.traffic)


class ProtocolError(ExchangeError):
    """A message that cannot be read, is larger than allowed, or belongs to another exchange."""


class ContractError(CoterieError):
    """An algorithm breaks the contract that engines and the loop rely on."""
