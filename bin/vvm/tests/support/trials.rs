//! The trials of a suite, some of them on each server.

use libtest_mimic::{Arguments, Trial};

use super::fixture::{Storage, StorageFixture};

/// A trial on redb or without a storage: its name, the trial, and whether this machine can run it.
pub(crate) type AloneTrial = (&'static str, fn(), bool);

/// A trial on each server. Only one process can use a redb file.
pub(crate) type ServerTrial = (&'static str, fn(&StorageFixture));

/// Runs the trials that the arguments choose, and ends the process.
pub(crate) fn run(alone: impl IntoIterator<Item = AloneTrial>, on_servers: ServerTrial) -> ! {
    let alone = alone.into_iter().map(|(name, run, can_run)| {
        let run = move || {
            run();
            Ok(())
        };
        Trial::test(name, run).with_ignored_flag(!can_run)
    });
    let servers = Storage::all().into_iter().filter(|(name, _)| *name != "redb");
    let (name, run) = on_servers;
    let servers = servers.map(|(server, storage)| {
        let is_ignored = storage.is_none();
        let run = move || {
            run(&StorageFixture::new(storage.unwrap()));
            Ok(())
        };
        Trial::test(format!("{server}::{name}"), run).with_ignored_flag(is_ignored)
    });
    let trials = alone.chain(servers).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit()
}
