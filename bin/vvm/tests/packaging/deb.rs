//! The package for Debian: it is built, and installed in a copy of this system.
//!
//! The copy is an overlay over the root of this machine, in a mount namespace of its own. All
//! changes are in memory, and end with the namespace.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{output, repository};

/// The beginning of a script that makes the copy in the folder `$1` and enters it.
const OVERLAY: &str = "set -eu; cd \"$1\"; mkdir changes copy
    mount -t tmpfs -o size=2g,mode=755 none changes; mkdir changes/upper changes/work
    mount -t overlay -o lowerdir=/,upperdir=changes/upper,workdir=changes/work none copy
    mount -t proc none copy/proc; mount -t tmpfs none copy/tmp; mount -t tmpfs none copy/dev
    mkdir copy/dev/shm copy/dev/pts; ln -s /proc/self/fd copy/dev/fd
    for device in null zero full random urandom tty; do
        touch copy/dev/$device; mount --bind /dev/$device copy/dev/$device
    done
    ";

/// The program of systemd.
const SYSTEMD: &str = "/lib/systemd/systemd";

/// Whether this process may make the copy. That needs root and overlays.
pub(crate) fn can_overlay() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let made = overlay(folder.path(), "chroot copy dpkg --version", &[])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    made.is_ok_and(|status| status.success())
}

/// Whether systemd can be the first process of the copy.
pub(crate) fn can_boot() -> bool {
    Path::new(SYSTEMD).exists() && {
        let folder = tempfile::tempdir().unwrap();
        booted(folder.path(), "echo booted\n", None, "20") == "booted\n"
    }
}

/// Boots the copy, and returns the output of a script that runs as a service, for at most this many
/// seconds.
fn booted(folder: &Path, script: &str, package: Option<&Path>, seconds: &str) -> String {
    let out = folder.join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("trial.sh"), script).unwrap();
    fs::write(folder.join("boot.sh"), include_str!("boot.sh")).unwrap();
    if let Some(package) = package {
        fs::copy(package, out.join("vvm.deb")).unwrap();
    }
    let boot = "exec sh boot.sh \"$1\" trial.sh";
    let unshare = overlay(folder, boot, &[]);
    let mut command = Command::new("timeout");
    command.arg(seconds).arg(unshare.get_program());
    command.args(["--cgroup", "--net", "--ipc", "--uts"]).args(unshare.get_args());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // The first process ends as it likes: the output says how the script ended.
    let _ = command.status().unwrap();
    fs::read_to_string(out.join("log")).unwrap_or_default()
}

/// The node of the package works under systemd with all restrictions of its unit.
pub(crate) fn under_systemd() {
    let folder = tempfile::tempdir().unwrap();
    let package = package(folder.path(), None);
    let told = booted(folder.path(), include_str!("under_systemd.sh"), Some(&package), "120");
    assert!(told.ends_with("== done\n"), "{told}");
}

/// Returns a command that runs a script beside the copy, which is in the folder `copy`.
fn overlay(folder: &Path, script: &str, arguments: &[&Path]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c"]);
    command.arg(format!("{OVERLAY}{script}")).arg("sh").arg(folder).args(arguments);
    command
}

/// Builds the package of a version, around a program without debug information.
fn package(folder: &Path, version: Option<&str>) -> PathBuf {
    let binary = folder.join("vvm");
    if !binary.exists() {
        fs::copy(env!("CARGO_BIN_EXE_vvm"), &binary).unwrap();
        output(Command::new("strip").arg(&binary));
    }
    let mut xtask = Command::new(env!("CARGO"));
    xtask.args(["run", "--quiet", "--package", "xtask", "--", "deb", "--binary"]).arg(&binary);
    xtask.arg("--output").arg(folder);
    // A package for a test need not be small.
    xtask.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    let built = output(xtask.args(version.iter().flat_map(|version| ["--version", *version])));
    PathBuf::from(built.trim())
}

pub(crate) fn installed() {
    let folder = tempfile::tempdir().unwrap();
    let packages = [None, Some("9.9.9")].map(|version| package(folder.path(), version));
    let script = folder.path().join("install.sh");
    fs::write(&script, include_str!("install.sh")).unwrap();
    let enter = "cp \"$2\" \"$3\" \"$4\" copy/tmp/
        exec chroot copy sh /tmp/install.sh \"/tmp/${3##*/}\" \"/tmp/${4##*/}\"";
    let [first, second] = &packages;
    let told = output(&mut overlay(folder.path(), enter, &[&script, first, second]));
    assert!(told.ends_with("== done\n"), "{told}");
}

/// The package has the configuration as a file of the operator, and each script can be read.
pub(crate) fn built() {
    let folder = tempfile::tempdir().unwrap();
    let package = package(folder.path(), None);
    let name = package.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with(concat!("vvm_", env!("CARGO_PKG_VERSION"), "_")), "{name}");
    let control = output(Command::new("dpkg-deb").arg("--info").arg(&package));
    assert!(control.contains("Depends: libc6 (>= 2."), "{control}");
    let conffiles = output(Command::new("dpkg-deb").arg("--info").arg(&package).arg("conffiles"));
    assert_eq!(conffiles, "/etc/vvm/vvm.toml\n");
    let files = output(Command::new("dpkg-deb").arg("--contents").arg(&package));
    assert!(files.lines().all(|line| line.contains(" root/root ")), "{files}");
    for script in ["postinst", "prerm", "postrm"] {
        let script = repository("packaging/debian").join(script);
        output(Command::new("sh").arg("-n").arg(script));
    }
}
