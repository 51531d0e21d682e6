//! The unit of systemd.

use std::{fs, process::Command};

use crate::{output, repository};

const UNIT: &str = "packaging/systemd/vvm.service";

fn unit() -> String {
    fs::read_to_string(repository(UNIT)).unwrap()
}

/// systemd knows each key of the unit, and finds nothing that is left open without need.
pub(crate) fn valid() {
    let folder = tempfile::tempdir().unwrap();
    // The package installs the program. Here it is not installed.
    let unit =
        unit().replace("ExecStart=/usr/bin/vvm", concat!("ExecStart=", env!("CARGO_BIN_EXE_vvm")));
    let file = folder.path().join("vvm.service");
    fs::write(&file, unit).unwrap();
    let mut verify = Command::new("systemd-analyze");
    let verified = verify.args(["verify", "--man=no"]).arg(&file).output().unwrap();
    let complaints = String::from_utf8(verified.stderr).unwrap();
    assert!(verified.status.success() && complaints.is_empty(), "{complaints}");
    // The scale of the exposure ends at 100.
    let mut security = Command::new("systemd-analyze");
    security.args(["security", "--offline=true", "--threshold=15"]).arg(&file);
    assert!(output(&mut security).contains("Overall exposure level for vvm.service"));
}

/// The unit and `docs/operations.md` agree about the exit codes after which another start is
/// useless.
pub(crate) fn exit_codes() {
    let unit = unit();
    let codes = unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus="));
    let codes: Vec<u8> = codes.unwrap().split(' ').map(|code| code.parse().unwrap()).collect();
    let manual = fs::read_to_string(repository("docs/operations.md")).unwrap();
    let (_, table) = manual.split_once("\n## Exit codes\n").unwrap();
    let rows = table.lines().skip_while(|line| !line.starts_with("|---:|"));
    let rows: Vec<_> = rows.skip(1).take_while(|line| line.starts_with("| ")).collect();
    let in_vain: Vec<u8> = rows
        .iter()
        .filter_map(|row| {
            let cells: Vec<_> = row.split('|').map(str::trim).collect();
            (cells[1] != "0" && cells[3] != "yes").then(|| cells[1].parse().unwrap())
        })
        .collect();
    assert_eq!(rows.len(), 13, "{rows:?}");
    assert_eq!(codes, in_vain);
}
