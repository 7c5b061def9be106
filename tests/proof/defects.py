"""Deliberate defects of the file engine and of the core, and the tests that notice each of them.

`make mutants` (tests/proof/mutants.py) puts one after the other into a copy of the source, and wants red.
A defect whose text is not in the source any more is stale, and has to be written anew: it says what must
never become of the code that stands there now.
"""

from __future__ import annotations

from typing import NamedTuple


class Defect(NamedTuple):
    """A small change of one source file that breaks a promise. `file` is its place under src/hansard, `old`
    stands in it just once, and each of `tests` is there and passes without the change; one of them at least
    must fail with it."""

    name: str
    breaks: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


# -- where the tests stand


def power(workload: str) -> str:
    """The power is cut at every step of a workload."""
    test = "test_a_power_cut_at_any_step_takes_nothing_that_was_acknowledged"
    return f"tests/proof/test_power_cuts.py::{test}[{workload}]"


def fault(workload: str) -> str:
    """Every call of a workload fails once."""
    return f"tests/proof/test_faults.py::test_whatever_call_fails_nothing_acknowledged_is_lost[{workload}]"


def kernel(workload: str) -> str:
    """What the kernel sees of a workload is what the simulated disk sees."""
    return f"tests/proof/test_system_calls.py::test_what_is_simulated_is_what_the_kernel_sees[{workload}]"


def storm(name: str) -> str:
    return f"tests/proof/test_storms.py::test_{name}"


def contract(name: str) -> str:
    """A test that every engine has to pass, with the file engine."""
    name, _, which = name.partition("[")
    return f"tests/engines/test_conformance.py::test_{name}[files{f'-{which}' if which else ']'}"


def files(name: str) -> str:
    return f"tests/engines/test_files.py::test_{name}"


def trouble(name: str) -> str:
    return f"tests/engines/test_files_trouble.py::test_{name}"


def following(name: str) -> str:
    return f"tests/engines/test_files_following.py::test_{name}"


def repair(name: str) -> str:
    return f"tests/engines/test_repair.py::test_{name}"


def records(name: str) -> str:
    return f"tests/engines/test_records.py::test_{name}"


DEFECTS = [
    # -- syncs
    Defect(
        name="no fdatasync",
        breaks="Nothing that is written is ever made to last.",
        file="engines/disk.py",
        old="            os.fdatasync(fd)\n",
        new="            pass\n",
        tests=(kernel("beginning"),),
    ),
    Defect(
        name="no fsync of folders",
        breaks="No name that is given, changed or taken away is ever made to last.",
        file="engines/disk.py",
        old="            os.fsync(fd)\n",
        new="            pass\n",
        tests=(kernel("beginning"),),
    ),
    Defect(
        name="append not synced",
        breaks="A durable append returns before it is on the disk.",
        file="engines/files.py",
        old="""\
        if durable:
            try:
                disk.sync(fd)
""",
        new="""\
        if durable:
            try:
                pass
""",
        tests=(
            trouble("a_write_of_several_records_costs_one_sync_and_one_that_is_not_durable_none"),
            power("talking"),
        ),
    ),
    Defect(
        name="append synced before it is written",
        breaks="The sync of an append makes what came before it last, and not the append.",
        file="engines/files.py",
        old="""\
            disk.write(fd, data)
        except OSError as error:
            raise self._cut_back(log, end, error, "writing") from error
        if durable:
            try:
                disk.sync(fd)
            except OSError as error:
                raise self._cut_back(log, end, error, "syncing") from error
            log.floor = log.synced = end + len(data)
""",
        new="""\
            if durable:
                disk.sync(fd)
            disk.write(fd, data)
        except OSError as error:
            raise self._cut_back(log, end, error, "writing") from error
        if durable:
            log.floor = log.synced = end + len(data)
""",
        tests=(power("talking"),),
    ),
    Defect(
        name="first write synced before it is written",
        breaks="The first message of a session is not on the disk when the call returns.",
        file="engines/files.py",
        old="""\
        self.disk.write(fd, line + rest)
        self.disk.sync(fd)
""",
        new="""\
        self.disk.sync(fd)
        self.disk.write(fd, line + rest)
""",
        tests=(power("beginning"),),
    ),
    Defect(
        name="folder not synced after a session is begun",
        breaks="A new session is gone after a power cut, though its first message was acknowledged.",
        file="engines/files.py",
        old="""\
                records = self._write_first(log, fd, drafts)
                self.disk.sync_folder(self.path("sessions"))
""",
        new="""\
                records = self._write_first(log, fd, drafts)
""",
        tests=(power("beginning"),),
    ),
    Defect(
        name="folder not synced after a whole session is put",
        breaks="A fork or an import is gone after a power cut.",
        file="engines/files.py",
        old="""\
                self.disk.rename(beside, log.path)
                self.disk.sync_folder(self.path("sessions"))
""",
        new="""\
                self.disk.rename(beside, log.path)
""",
        tests=(power("branching"),),
    ),
    Defect(
        name="folder not synced after a vacuum",
        breaks="What is said after a vacuum goes into a file that a power cut takes away.",
        file="engines/files.py",
        old="""\
            try:
                self._sync_names("sessions")
            finally:
                log.detach()
            return before - after
""",
        new="""\
            log.detach()
            return before - after
""",
        tests=(power("emptying"),),
    ),
    Defect(
        name="folder not synced after a deletion",
        breaks="A deleted session comes back after a power cut.",
        file="engines/files.py",
        old="""\
            self.disk.unlink(log.path)
            self._sync_names("sessions")
""",
        new="""\
            self.disk.unlink(log.path)
""",
        tests=(power("forgetting"),),
    ),
    Defect(
        name="folder not synced after a whole file is replaced",
        breaks="Names, state and documents go back to what they were after a power cut.",
        file="engines/disk.py",
        old="            self.sync_folder(os.path.dirname(path))\n",
        new="            pass\n",
        tests=(power("keeping"),),
    ),
    Defect(
        name="folder not synced after a document is taken away",
        breaks="A document that was taken away comes back after a power cut.",
        file="engines/files.py",
        old='            self._sync_names(self._shelf_path(shelf).removeprefix(self.root + "/"))\n',
        new="",
        tests=(power("keeping"),),
    ),
    Defect(
        name="new folders not synced into theirs",
        breaks="A power cut takes a folder with all that was acknowledged in it.",
        file="engines/disk.py",
        old="            self.sync_folder(parent)\n",
        new="            pass\n",
        tests=(power("beginning"), power("keeping")),
    ),
    Defect(
        name="renamed without a sync of the new file",
        breaks="After a power cut a name stands for a file in which nothing has arrived.",
        file="engines/disk.py",
        old="""\
                self.write(fd, data)
                self.sync(fd)
""",
        new="""\
                self.write(fd, data)
""",
        tests=(power("keeping"),),
    ),
    Defect(
        name="whole file written over in place",
        breaks="A power cut in the middle leaves neither the old document nor the new one.",
        file="engines/disk.py",
        old="        temporary = beside or path + TEMPORARY\n",
        new="        temporary = path\n",
        tests=(power("keeping"),),
    ),
    Defect(
        name="vacuumed log not synced before it is renamed",
        breaks="A vacuum may leave a log in which nothing has arrived.",
        file="engines/files.py",
        old="""\
            self.disk.write(fd, b"".join(lines))
            self.disk.sync(fd)
        finally:
            self.disk.close(fd)
        return size
""",
        new="""\
            self.disk.write(fd, b"".join(lines))
        finally:
            self.disk.close(fd)
        return size
""",
        tests=(power("emptying"),),
    ),
    Defect(
        name="put log not synced before it is renamed",
        breaks="A fork or an import may leave a log in which nothing has arrived.",
        file="engines/files.py",
        old="""\
            self.disk.write(fd, b"".join(lines))
            self.disk.sync(fd)
        finally:
            self.disk.close(fd)
        return seq
""",
        new="""\
            self.disk.write(fd, b"".join(lines))
        finally:
            self.disk.close(fd)
        return seq
""",
        tests=(power("branching"),),
    ),
    Defect(
        name="flush passed over",
        breaks="What was said with durable=False is not made to last by flush().",
        file="engines/files.py",
        old="        if log.synced == log.end:\n",
        new="        if log.synced <= log.end:\n",
        tests=(
            trouble("a_write_of_several_records_costs_one_sync_and_one_that_is_not_durable_none"),
            power("talking"),
        ),
    ),
    Defect(
        name="document put before its session lasts",
        breaks="After a power cut a document shows what its session has not said yet.",
        file="engines/files.py",
        old="""\
                    raise _replaced(shelf.session)
                self._sync(log)
""",
        new="""\
                    raise _replaced(shelf.session)
""",
        tests=(power("unsynced"),),
    ),
    Defect(
        name="name given to what does not last",
        breaks="After a power cut a name points at a session that lacks what it was given for.",
        file="names.py",
        old="            self._store._engine.flush(head.id)  # a name that",
        new="            # a name that",
        tests=(power("unsynced"),),
    ),
    Defect(
        name="row closed before the log is synced",
        breaks="A session that was closed may lack what others said in it after a power cut.",
        file="engines/files.py",
        old="""\
            self._sync(log)
            log.fold(log.end)
            log.save()
""",
        new="""\
            log.fold(log.end)
            log.save()
""",
        tests=(trouble("close_syncs_what_others_have_said_too"),),
    ),
    # -- failures
    Defect(
        name="failed sync not cut back",
        breaks="What a failed append has left is there, though the call raised.",
        file="engines/files.py",
        old="            self.disk.truncate(fd, end)\n            if doing",
        new="            if doing",
        tests=(trouble("a_failed_sync_takes_back_nothing_that_somebody_else_has_synced"),),
    ),
    Defect(
        name="failed sync is repeated into a false success",
        breaks="What was said before with durable=False is taken for synced, and nobody writes it again.",
        file="engines/files.py",
        old="                self.disk.rewrite(log.path, floor, log.stretch(floor, end))\n",
        new="                pass\n",
        tests=(trouble("a_failed_sync_takes_back_nothing_that_somebody_else_has_synced"),),
    ),
    Defect(
        name="failed sync cuts off what others have said",
        breaks="A durable message of another writer is gone when a sync fails here.",
        file="engines/files.py",
        old="                log.end = log.floor = size\n                return\n",
        new="                log.end = size\n                return\n",
        tests=(trouble("a_failed_sync_takes_back_nothing_that_others_have_said"),),
    ),
    Defect(
        name="work goes on after a failed sync",
        breaks="A handle whose sync has failed once goes on as if nothing had been lost.",
        file="engines/files.py",
        old="            told.closes = True\n",
        new="            told.closes = False\n",
        tests=(trouble("a_failed_sync_takes_back_all_that_was_not_synced_and_closes_the_handle"),),
    ),
    Defect(
        name="failed creation left behind",
        breaks="A session that could not be begun is there all the same.",
        file="engines/files.py",
        old="""\
            self.disk.truncate(fd, 0)
            gone = True
        with suppress(OSError):
            self.disk.unlink(log.path)
            gone = True
""",
        new="""\
            gone = True
""",
        tests=(
            trouble("a_session_whose_folder_cannot_be_synced_is_not_there"),
            fault("beginning"),
        ),
    ),
    Defect(
        name="short write taken for a whole one",
        breaks="A disk that takes less than it is given leaves a torn record, and the call returns.",
        file="engines/disk.py",
        old="        while written < len(data):\n",
        new="        while written < 0:\n",
        tests=(trouble("a_disk_that_takes_a_little_at_a_time_gets_it_all[64]"), fault("talking")),
    ),
    # -- crashes and what they leave
    Defect(
        name="appended to a torn tail",
        breaks="The first message after a crash runs into what the crash left.",
        file="engines/files.py",
        old="""\
        elif log.folded < size:
            self.disk.truncate(fd, log.folded)
        log.end""",
        new="""\
        log.end""",
        tests=(files("a_torn_tail_is_set_aside_before_it_is_cut"), power("after_a_crash")),
    ),
    Defect(
        name="torn tail not set aside",
        breaks="What a crash left of a write is thrown away without a copy.",
        file="engines/files.py",
        old="            self._set_aside(log, log.folded, size)\n",
        new="            pass\n",
        tests=(files("a_torn_tail_is_set_aside_before_it_is_cut"),),
    ),
    Defect(
        name="lost newline not mended",
        breaks="A message is written behind a line that lacks its end.",
        file="engines/files.py",
        old='            self.disk.write(fd, b"\\n")\n',
        new="            pass\n",
        tests=(files("a_last_line_that_lacks_its_newline_counts"), power("after_a_crash")),
    ),
    Defect(
        name="documents of a deletion cut short left",
        breaks="A new session has the documents of a deleted one of its id.",
        file="engines/files.py",
        old="        self._drop_documents(log.session)  # a deletion was cut short\n",
        new="",
        tests=(files("documents_that_a_deletion_left_do_not_come_back"),),
    ),
    Defect(
        name="repair without a copy",
        breaks="A damaged log is written anew, and what it was is nowhere.",
        file="engines/examination.py",
        old='            files.keep_copy(log, "damaged")\n',
        new="",
        tests=(repair("what_can_be_read_of_a_damaged_log_becomes_a_sound_one"),),
    ),
    # -- records
    Defect(
        name="checksum not verified",
        breaks="A flipped bit is shown as if it had been said.",
        file="records.py",
        old="            if crc32(memoryview(block)[: -_SEAL - 1], self._seeds[0]) == claimed:\n",
        new="            if block:\n",
        tests=(records("a_flipped_bit_anywhere_costs_one_write_at_most_and_is_located"),),
    ),
    Defect(
        name="checksum of the line alone",
        breaks="A line that is lost, doubled or moved is not noticed.",
        file="records.py",
        old="    total = crc32(front, state)\n",
        new="    total = crc32(front)\n",
        tests=(records("sum_is_the_checksum_of_all_bytes_of_the_file_before_it"),),
    ),
    Defect(
        name="altered line shown",
        breaks="A line whose checksum says that it is not what was written is shown.",
        file="records.py",
        old="        if claimed not in sums or not follows:\n",
        new="        if not follows:\n",
        tests=(records("a_flipped_bit_anywhere_costs_one_write_at_most_and_is_located"),),
    ),
    Defect(
        name="batch without a frame",
        breaks="A power cut leaves the first half of an extend().",
        file="records.py",
        old="    batch = (seq, len(drafts))\n",
        new="    batch = None\n",
        tests=(records("a_log_cut_at_any_byte_gives_every_whole_write_and_no_other"), power("talking")),
    ),
    Defect(
        name="frame of a batch ignored by a reader",
        breaks="What is there of an incomplete write is shown.",
        file="records.py",
        old="        if batch is None or batch[1] <= 1:\n",
        new="        if True:\n",
        tests=(records("a_batch_of_which_a_line_is_missing_is_shown_not_at_all"),),
    ),
    Defect(
        name="torn batch shown at the end",
        breaks="A reader sees half of what somebody is writing just now.",
        file="records.py",
        old="""\
            self._vouch(self._held, found)
        return found
""",
        new="""\
            self._vouch(self._held, found)
        return found + self._open
""",
        tests=(records("a_log_cut_at_any_byte_gives_every_whole_write_and_no_other"),),
    ),
    Defect(
        name="written on from the middle of a batch",
        breaks="A message is written behind half a write of a crashed process, which then never ends.",
        file="records.py",
        old="    if first is not None and seq != int(first) + int(n) - 1:\n",
        new="    if first is not None and seq < 0:\n",
        tests=(records("the_end_of_a_log_inside_a_batch_is_not_taken_for_the_end_of_a_write"),),
    ),
    # -- locks and writers beside one another
    Defect(
        name="no append lock",
        breaks="Two writers give the same number twice, and tear what the other writes.",
        file="engines/files.py",
        old="            log.detach()\n        end = log.end\n",
        new="            log.detach()\n        self.disk.unlock(fd)\n        end = log.end\n",
        tests=(files("who_writes_to_a_log_waits_for_who_is_about_to_write_there[begun]"),),
    ),
    Defect(
        name="no lock while a session is begun",
        breaks="Two begin the same session, and both write its first line.",
        file="engines/files.py",
        old="""\
            log.depth = 1
            self.disk.wait_lock(fd, log.path)
            stat = self.disk.stat(fd)
            if not stat.plain:
""",
        new="""\
            stat = self.disk.stat(fd)
            if not stat.plain:
""",
        tests=(files("who_writes_to_a_log_waits_for_who_is_about_to_write_there[not begun]"),),
    ),
    Defect(
        name="file not looked at after its lock is had",
        breaks="A message goes into a log that was deleted or vacuumed meanwhile, and is lost.",
        file="engines/files.py",
        old="""\
                break
            log.detach()
        end = log.end
""",
        new="""\
                break
            break
        end = log.end
""",
        tests=(
            files("who_waits_for_the_lock_of_a_log_that_is_replaced_meanwhile_does_not_write_to_the_old_one"),
        ),
    ),
    Defect(
        name="length of a log taken for its identity",
        breaks="A reader goes on from what was folded of bytes that were cut off and written anew.",
        file="engines/logs.py",
        old='        return state_after(end + b"\\n" if length > size else end) == state\n',
        new="        return True\n",
        tests=(trouble("whoever_knows_the_log_as_it_was_before_a_cut_sees_that_it_was_cut"),),
    ),
    Defect(
        name="end of a log taken for what it was",
        breaks="A writer goes on from a checksum of bytes that another one has cut off and written anew.",
        file="engines/files.py",
        old=" or self.disk.read(fd, SEALED, end - SEALED) != log.tail:\n",
        new=":\n",
        tests=(trouble("whoever_knows_the_log_as_it_was_before_a_cut_writes_on_from_what_is_there"),),
    ),
    Defect(
        name="state and names changed without their lock",
        breaks="Of two who change a state at once one is undone.",
        file="engines/files.py",
        old='            with self.disk.locked(self.path(f"locks/.{shelf.kind}")):\n                yield\n',
        new="            yield\n",
        tests=(files("who_changes_a_state_waits_for_who_is_about_to_write_it"),),
    ),
    Defect(
        name="expect not checked",
        breaks="A writer that has not seen the last record writes behind it all the same.",
        file="engines/files.py",
        old="if expect is not None and expect != log.seq:",
        new="if expect is not None and expect > log.seq:",
        tests=(contract("a_message_by_somebody_else_fails_what_was_expected"),),
    ),
    Defect(
        name="uid not checked",
        breaks="The handle of a deleted session writes into another one that has its id now.",
        file="engines/files.py",
        old="        if uid is not None and log.head is not None and log.head.uid != uid:\n",
        new="        if uid is not None and log.head is None:\n",
        tests=(
            contract("an_open_handle_of_a_deleted_session_does_not_write_to_another_that_has_its_id[append]"),
        ),
    ),
    Defect(
        name="repeated id answered from memory",
        breaks="Another message under the id of an earlier one is said to be stored, and is not.",
        file="engines/files.py",
        old="""\
                first = self._by_id(log, draft.id)
                if first is not None:
                    found[i] = repeated(log.session, draft, first)
""",
        new="""\
                draft.seq = log.seq_of(draft.id)
                if draft.seq is not None:
                    found[i] = stored(draft)
""",
        tests=(contract("another_call_under_the_same_id_is_a_conflict_that_has_the_first[append]"),),
    ),
    Defect(
        name="repeat not synced",
        breaks="A durable repeat of what was said with durable=False returns before it lasts.",
        file="engines/files.py",
        old="elif durable:",
        new="elif durable and log.end < 0:",
        tests=(power("talking"),),
    ),
    # -- the catalog
    Defect(
        name="stale catalog trusted",
        breaks="A list has what the catalog had before a crash, and not what the logs say.",
        file="engines/catalog_file.py",
        old="        self.trusted = same and boot == self._disk.boot() and not self._flagged()\n",
        new="        self.trusted = True\n",
        tests=(files("an_old_copy_of_the_catalog_that_is_brought_back_is_known_for_one"),),
    ),
    Defect(
        name="catalog trusted after a restart of the machine",
        breaks="A list has what a power cut took from a log.",
        file="engines/catalog_file.py",
        old="        self.trusted = same and boot == self._disk.boot() and not self._flagged()\n",
        new="        self.trusted = same and not self._flagged()\n",
        tests=(files("a_list_is_right_after_a_power_cut_took_the_end_of_a_log"),),
    ),
    Defect(
        name="warning of a writer without a catalog passed over",
        breaks="A list lacks what was said by somebody who could not tell the catalog.",
        file="engines/catalog_file.py",
        old="        return not self.trusted or self.in_memory or self._flagged()\n",
        new="        return not self.trusted or self.in_memory\n",
        tests=(files("what_was_written_by_somebody_who_had_no_catalog_is_listed_by_all"),),
    ),
    Defect(
        name="row of another log believed",
        breaks="A head is folded on from a row that another log left.",
        file="engines/logs.py",
        old="        if self.agrees(row.length, row.state, size):\n            self.head = row.head\n",
        new="        if row.length <= size:\n            self.head = row.head\n",
        tests=(
            files("damage_costs_what_it_hit_is_located_and_spreads_to_nothing_new[doubled line-as it was]"),
        ),
    ),
    Defect(
        name="row not marked before a session is begun",
        breaks="A list lacks a session that another process has begun.",
        file="engines/files.py",
        old="""\
            self.catalog.use(lambda catalog: catalog.mark_open(session), writing=True)
            if lease is not None:
                lease.marked = True
            fd = self._take_new(log)
            try:
                records""",
        new="""\
            fd = self._take_new(log)
            try:
                records""",
        tests=(files("whoever_lists_while_a_write_is_under_way_has_what_is_there_of_it"),),
    ),
    Defect(
        name="row not marked before a write",
        breaks="A list that comes in between, or after a crash, lacks what was said.",
        file="engines/files.py",
        old="self._will_grow(log, lease)\n",
        new="pass\n",
        tests=(files("whoever_lists_while_a_write_is_under_way_has_what_is_there_of_it"),),
    ),
    Defect(
        name="row closed under a lease of others",
        breaks="A list lacks what the holder of a lease says next.",
        file="engines/files.py",
        old="            if mine or self._leases.free(session):\n",
        new="            if True:\n",
        tests=(contract("a_list_has_what_the_holder_writes_after_a_shared_handle_was_closed[elsewhere]"),),
    ),
    Defect(
        name="row closed by a list while somebody has it open",
        breaks="A list lacks what the holder of a lease said after the list before.",
        file="engines/files.py",
        old="            if stat.size == log.saved and self._leases.free(log.session):\n",
        new="            if stat.size == log.saved:\n",
        tests=(contract("another_process_lists_what_is_being_written"),),
    ),
    # -- leases
    Defect(
        name="lease without a lock",
        breaks="Two have a session open at once.",
        file="engines/leases.py",
        old="                if self._disk.lock(lease.fd):\n",
        new="                if lease.fd:\n",
        tests=(files("whatever_a_lock_file_says_the_kernels_lock_decides"),),
    ),
    Defect(
        name="lock file not looked at after its lock is had",
        breaks="Two hold a lease at once: one of them a file that was taken away.",
        file="engines/leases.py",
        old="""\
                    if found is not None and found.inode == self._disk.stat(lease.fd).inode:
                        held = True
""",
        new="""\
                    if found is not None or lease.fd:
                        held = True
""",
        tests=(files("the_lock_of_a_lock_file_that_was_given_back_meanwhile_is_no_lease"),),
    ),
    Defect(
        name="lock file taken away by a loser",
        breaks="A contender that lost lets the next one in beside the holder.",
        file="engines/leases.py",
        old="""\
                if not held:
                    lease.close()
""",
        new="""\
                if not held:
                    self.give_back(lease)
""",
        tests=(files("a_lock_file_goes_with_the_lease_and_not_with_a_loser"),),
    ),
    Defect(
        name="lock file swept though somebody holds it",
        breaks="Whoever looks who has what open lets the next one in beside the holder.",
        file="engines/leases.py",
        old="            if self._disk.lock(fd):\n",
        new="            if self._disk.lock(fd) or not self._readonly:\n",
        tests=(files("sweeping_takes_away_what_the_dead_left_and_nothing_else"),),
    ),
    Defect(
        name="what was inherited goes on after a fork",
        breaks="A child writes with the locks and files of its parent.",
        file="engines/disk.py",
        old="        self.inherited = True\n        for fd in self._open:\n",
        new="        for fd in self._open:\n",
        tests=(contract("a_forked_child_finds_its_handles_closed_and_the_parent_keeps_its_lease"),),
    ),
    # -- taking out and away
    Defect(
        name="children deleted after their parent",
        breaks="A deletion that fails in the middle leaves children without their parent.",
        file="store.py",
        old="""\
        children = [] if unless_input else self._children(head.id)
        for child in children:
            self._remove(child, unless_input=False)
        with _done() if""",
        new="""\
        children = [] if unless_input else self._children(head.id)
        with _done() if""",
        tests=(files("a_session_whose_child_cannot_be_deleted_stays"),),
    ),
    Defect(
        name="newest history vacuumed",
        breaks="A vacuum takes out what decides what the model sees.",
        file="views/vacuum.py",
        old="    if record.seq >= base.after:\n",
        new="    if record.seq > base.after:\n",
        tests=(contract("what_stays_are_just_the_records_that_somebody_can_miss"),),
    ),
    Defect(
        name="frame of a batch kept by a vacuum",
        breaks="What a vacuum leaves of a write is not shown, for the write is never complete.",
        file="engines/files.py",
        old="                    new, state = sealed_anew(line, state, alone=seq in split)\n",
        new="                    new, state = sealed_anew(line, state)\n",
        tests=(contract("of_a_write_that_is_partly_dropped_the_rest_stands_alone"),),
    ),
    Defect(
        name="blobs swept though they are named",
        breaks="A picture that a message needs is gone.",
        file="engines/files.py",
        old="                swept = sorted(set(old) - needed(set(old))) if old else []\n",
        new="                swept = sorted(old) if needed(set(old)) is not None else []\n",
        tests=(contract("what_another_handle_has_just_named_is_not_swept"), power("keeping")),
    ),
    Defect(
        name="blobs swept without the lock",
        breaks="A blob is swept while somebody is about to name it.",
        file="engines/files.py",
        old="            with self._blobs_locked(shared=False):\n",
        new="            with self._blobs_locked(shared=True):\n",
        tests=(contract("who_names_a_blob_while_others_sweep_waits_for_them[record]"),),
    ),
    Defect(
        name="blob put again not touched",
        breaks="A blob that was put just now is swept before it is named.",
        file="engines/files.py",
        old="                self.disk.touch(path)\n",
        new="",
        tests=(contract("what_is_put_again_is_safe_for_another_day"),),
    ),
    Defect(
        name="pinned sessions cleaned up",
        breaks="A session that somebody pinned is deleted.",
        file="retention.py",
        old='    safe = {h.id for h in heads if h.pinned or (h.id, h.uid) in named or (h.id, "") in named}\n',
        new='    safe = {h.id for h in heads if (h.id, h.uid) in named or (h.id, "") in named}\n',
        tests=(contract("pinned_and_named_sessions_stay"),),
    ),
    # -- what is seen
    Defect(
        name="parts of a history ignored",
        breaks="After a checkpoint the model sees nothing of what was kept.",
        file="views/history.py",
        old="""\
    parts = [*base.parts, (base.after + 1, last)] if base.after < last else list(base.parts)
    if not parts:
""",
        new="""\
    parts = [(base.after + 1, last)] if base.after < last else []
    if not parts:
""",
        tests=(contract("a_checkpoint_replaces_what_the_model_sees_and_deletes_nothing"),),
    ),
    Defect(
        name="title of the last message",
        breaks="A session is called by whatever was said last.",
        file="views/head.py",
        old="    if said and not head.first_text:\n",
        new="    if said:\n",
        tests=(contract("a_title_is_the_first_user_text_and_a_preview_the_last"),),
    ),
    Defect(
        name="fork without documents",
        breaks="A fork lacks the documents of its parent.",
        file="store.py",
        old="            documents = self._copied_documents(parent)\n",
        new="            documents: dict[str, bytes] = {}\n",
        tests=(contract("documents_are_copied_and_go_their_own_way"),),
    ),
    Defect(
        name="fork that goes beyond its point",
        breaks="A fork shows what was said after the record at which it was taken.",
        file="store.py",
        old="histories.shown(then.base, point, parent._read)",
        new="histories.shown(then.base, parent.seq, parent._read)",
        tests=(contract("a_fork_may_begin_after_any_record_on_whatever_branch_it_lies"),),
    ),
    Defect(
        name="no step back after a cut",
        breaks="A follower misses what was written where a log was cut back.",
        file="following.py",
        old="""\
            self._step_back(engine, session)
            found = self._from_here(engine, session) or iter(())
""",
        new="""\
            found = iter(())
""",
        tests=(following("what_stands_where_a_log_was_cut_back_is_told_too"),),
    ),
]
