//! The container file. Where a builder works, a long round builds and starts the container.
//! Elsewhere the file is checked as far as a machine without a builder can.

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::{
    node::{NodeProcess, free},
    output, repository, vvm,
};

const FILE: &str = "packaging/Containerfile";

/// The programs that build containers.
const BUILDERS: [&str; 2] = ["podman", "docker"];

/// The libraries of the base image: glibc and the runtime of gcc, of Debian 12.
const LIBRARIES: [&str; 7] = [
    "linux-vdso.so.1",
    "ld-linux",
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libpthread.so.0",
    "libdl.so.2",
];

/// The version of glibc of the base image: 2.36.
const LIBC_MINOR: u32 = 36;

/// An instruction of the file: its name and its words, without options.
struct Instruction {
    name: String,
    options: Vec<String>,
    words: Vec<String>,
}

fn instructions() -> Vec<Instruction> {
    let text = fs::read_to_string(repository(FILE)).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let instructions = lines.map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        let name = words.next().unwrap();
        let (options, words) = words.partition(|word| word.starts_with("--"));
        Instruction { name, options, words }
    });
    instructions.collect()
}

fn named(name: &str) -> Vec<Instruction> {
    instructions().into_iter().filter(|instruction| instruction.name == name).collect()
}

/// Each source of a copy is in the repository, or in a stage before.
pub(crate) fn sources() {
    let ignored = fs::read_to_string(repository(".dockerignore")).unwrap();
    let mut stages = BTreeSet::new();
    let mut copied = Vec::new();
    for instruction in instructions() {
        match instruction.name.as_str() {
            "FROM" => stages.extend(instruction.words.get(2).cloned()),
            "COPY" => {
                let from = instruction.options.iter().find_map(|it| it.strip_prefix("--from="));
                if let Some(stage) = from {
                    assert!(stages.contains(stage), "no stage {stage}");
                    continue;
                }
                let (_, sources) = instruction.words.split_last().unwrap();
                for source in sources {
                    assert!(repository(source).exists(), "{source} does not exist");
                    assert!(!ignored.lines().any(|line| line == source), "{source} is ignored");
                }
                copied.extend_from_slice(sources);
            }
            _ => {}
        }
    }
    // Cargo reads the manifest of each member.
    let manifest = fs::read_to_string(repository("Cargo.toml")).unwrap();
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = ")).unwrap();
    for member in members.split('"').skip(1).step_by(2) {
        let folder = member.split('/').next().unwrap();
        assert!(copied.iter().any(|source| source == folder), "{member} is not copied");
    }
}

/// The copied files are a whole workspace, and each file that a source includes is among them.
pub(crate) fn complete() {
    let folder = tempfile::tempdir().unwrap();
    let copies = named("COPY").into_iter().take_while(|copy| copy.options.is_empty());
    for copy in copies {
        let (to, from) = copy.words.split_last().unwrap();
        let from = from.iter().map(|source| repository(source));
        let to = folder.path().join(to);
        output(Command::new("cp").arg("-r").args(from).arg(to));
    }
    let mut metadata = Command::new(env!("CARGO"));
    metadata.args(["metadata", "--locked", "--offline", "--no-deps", "--format-version=1"]);
    output(metadata.current_dir(&folder));
    let mut included = 0;
    for source in sources_below(folder.path()) {
        let text = fs::read_to_string(&source).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap();
        for include in ["include_str!(\"", "include_bytes!(\""] {
            for rest in text.split(include).skip(1) {
                let path = source.with_file_name(rest.split('"').next().unwrap());
                assert!(path.exists(), "{} is not copied", path.display());
                included += 1;
            }
        }
    }
    assert!(included > 0, "no source includes a file");
}

/// Returns the sources of the program. Tests, in `tests` and `tests.rs`, are not built.
fn sources_below(folder: &Path) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("tests") {
            sources.extend(sources_below(&path));
        } else if path.extension().is_some_and(|it| it == "rs") && !path.ends_with("tests.rs") {
            sources.push(path);
        }
    }
    sources
}

/// The compiler is that of the repository, the node is not root, and its ports are the default
/// ones.
pub(crate) fn settings() {
    let toolchain = fs::read_to_string(repository("rust-toolchain.toml")).unwrap();
    let compiler = toolchain.lines().find_map(|line| line.strip_prefix("channel = ")).unwrap();
    let stages = named("FROM");
    let image = format!("rust:{}-bookworm", compiler.trim_matches('"'));
    assert!(stages[0].words[0].ends_with(&image), "{image}: {:?}", stages[0].words);
    let last: Vec<_> = instructions();
    let last = last.rsplit(|it| it.name == "FROM").next().unwrap();
    let users: Vec<_> = last.iter().filter(|it| it.name == "USER").collect();
    let (user, group) = users[0].words[0].split_once(':').unwrap();
    assert!([user, group].iter().all(|id| id.parse::<u32>().unwrap() > 0), "{user}:{group}");
    let config = output(&mut vvm(&["config", "show"]));
    for port in &named("EXPOSE")[0].words {
        assert!(config.contains(&format!("listen = \"127.0.0.1:{port}\"")), "{port}: {config}");
    }
    assert_eq!(health_code(free()), Some(4), "no node is there");
    for instruction in ["ENTRYPOINT", "CMD", "VOLUME", "STOPSIGNAL"] {
        assert_eq!(named(instruction).len(), 1, "{instruction}");
    }
}

/// Runs the health check, which is a command of the program, and returns its exit code.
fn health_code(admin: SocketAddr) -> Option<i32> {
    let health = named("HEALTHCHECK").remove(0).words.join(" ");
    let words: Vec<String> = serde_json::from_str(health.strip_prefix("CMD ").unwrap()).unwrap();
    assert_eq!(words[0], "/usr/bin/vvm");
    let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let mut check = vvm(&arguments);
    check.env("VVM__ADMIN__LISTEN", admin.to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    check.status().unwrap().code()
}

/// The health check asked for the status, which needs a token. So a container with tokens was never
/// healthy.
pub(crate) fn healthy() {
    let folder = tempfile::tempdir().unwrap();
    let mut keygen = vvm(&["token", "keygen", "--out", "key.json", "--public", "keys.json"]);
    output(keygen.current_dir(&folder));
    let config = "[storage]\ndriver = \"mem\"\n[access]\nkeys_file = \"keys.json\"\n\
                  issuer = \"https://issuer.example\"\n";
    let node = NodeProcess::start(folder.path(), config).ready();
    assert_eq!(health_code(node.admin), Some(0));
    node.stop();
}

/// The base image has the libraries of the program.
pub(crate) fn libraries() {
    let program = env!("CARGO_BIN_EXE_vvm");
    let libraries = output(Command::new("ldd").arg(program));
    for line in libraries.lines() {
        let is_there = LIBRARIES.iter().any(|library| line.contains(library));
        assert!(is_there, "the base image has no {line}");
    }
    let symbols = output(Command::new("objdump").args(["-T", program]));
    let minors = symbols.split("GLIBC_2.").skip(1);
    let minors = minors.filter_map(|rest| rest.split(['.', ')', ' ']).next()?.parse().ok());
    let newest: u32 = minors.max().unwrap();
    assert!(newest <= LIBC_MINOR, "the program needs glibc 2.{newest}");
}

/// Returns a builder that works on this machine.
pub(crate) fn builder() -> Option<&'static str> {
    let works = |builder: &&&str| {
        let mut info = Command::new(builder);
        info.arg("info").stdout(Stdio::null()).stderr(Stdio::null());
        info.status().is_ok_and(|status| status.success())
    };
    BUILDERS.iter().find(works).copied()
}

/// The container is built, and prints the version of its program.
pub(crate) fn built() {
    let builder = builder().unwrap();
    let image = format!("vvm-test-{}", std::process::id());
    let mut build = Command::new(builder);
    build.args(["build", "--tag", &image, "--file"]).arg(repository(FILE)).arg(repository("."));
    output(&mut build);
    let version = output(Command::new(builder).args(["run", "--rm", &image, "--version"]));
    output(Command::new(builder).args(["image", "rm", &image]));
    assert_eq!(version.trim(), concat!("vvm ", env!("CARGO_PKG_VERSION")));
}
