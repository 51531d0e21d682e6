//! `cargo xtask deb`: the package for Debian and Ubuntu, built by `dpkg-deb` alone.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    cargo,
    error::{Error, ErrorContext, Result, failed},
    folders, process,
};

/// The files of the repository that go into the package unchanged, with their modes.
const FILES: &[(&str, &str, u32)] = &[
    ("config/vvm.toml", "etc/vvm/vvm.toml", 0o644),
    ("packaging/systemd/vvm.service", "lib/systemd/system/vvm.service", 0o644),
    ("packaging/debian/copyright", "usr/share/doc/vvm/copyright", 0o644),
    ("CHANGELOG.md", "usr/share/doc/vvm/changelog", 0o644),
    ("packaging/grafana/vvm.json", "usr/share/vvm/grafana/vvm.json", 0o644),
    ("packaging/prometheus/vvm.rules.yml", "usr/share/vvm/prometheus/vvm.rules.yml", 0o644),
    ("packaging/debian/postinst", "DEBIAN/postinst", 0o755),
    ("packaging/debian/prerm", "DEBIAN/prerm", 0o755),
    ("packaging/debian/postrm", "DEBIAN/postrm", 0o755),
];

/// The folders of the repository that go into the package, with the endings of their files' names.
const FOLDERS: &[(&str, &str, &str)] =
    &[("docs", "usr/share/doc/vvm", ".md"), ("config", "usr/share/doc/vvm/examples", ".toml")];

/// The completions: the shell, and its file.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/vvm"),
    ("zsh", "usr/share/zsh/vendor-completions/_vvm"),
    ("fish", "usr/share/fish/vendor_completions.d/vvm.fish"),
];

/// The choices of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct DebOptions {
    /// Packs this program, and builds nothing.
    #[arg(long, value_name = "VVM")]
    binary: Option<PathBuf>,
    /// The version of the package. The default is the version of the program.
    #[arg(long)]
    version: Option<String>,
    /// The folder of the package. The default is `debian` in the target folder.
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
}

/// Builds the package, and prints its path.
pub(crate) fn run(options: DebOptions) -> Result<()> {
    let (root, target) = (folders::root()?, cargo::target_folder()?);
    let binary = match options.binary {
        Some(binary) => binary,
        None => {
            cargo::run(&[
                "build",
                "--release",
                "--locked",
                "--package",
                "vvm-cli",
                "--bin",
                "vvm",
            ])?;
            target.join("release/vvm")
        }
    };
    let output = options.output.unwrap_or_else(|| target.join("debian"));
    let version = match options.version {
        Some(version) => version,
        None => version_of(&binary)?,
    };
    let architecture = stdout(Command::new("dpkg").arg("--print-architecture"))?;
    let name = format!("vvm_{version}_{}", architecture.trim());
    let stage = output.join(&name);
    if stage.exists() {
        fs::remove_dir_all(&stage).context(stage.display())?;
    }
    fill(&stage, &root, &binary)?;
    let control = control(&stage, &binary, &version, architecture.trim())?;
    write(&stage.join("DEBIAN/control"), &control, 0o644)?;
    write(&stage.join("DEBIAN/conffiles"), "/etc/vvm/vvm.toml\n", 0o644)?;
    let package = output.join(format!("{name}.deb"));
    let mut build = Command::new("dpkg-deb");
    process::run(build.args(["--root-owner-group", "--build"]).args([&stage, &package]))?;
    fs::remove_dir_all(&stage).context(stage.display())?;
    println!("{}", package.display());
    Ok(())
}

/// Puts all files of the package into its folder.
fn fill(stage: &Path, root: &Path, binary: &Path) -> Result<()> {
    copy(binary, &stage.join("usr/bin/vvm"), 0o755)?;
    for (from, to, mode) in FILES {
        copy(&root.join(from), &stage.join(to), *mode)?;
    }
    for (from, to, end) in FOLDERS {
        for file in fs::read_dir(root.join(from)).context(from)? {
            let file = file.context(from)?;
            if file.file_name().to_string_lossy().ends_with(end) {
                copy(&file.path(), &stage.join(to).join(file.file_name()), 0o644)?;
            }
        }
    }
    for (shell, file) in COMPLETIONS {
        let text = stdout(Command::new(binary).args(["completions", shell]))?;
        write(&stage.join(file), &text, 0o644)?;
    }
    let pages = stage.join("usr/share/man/man1");
    process::run(Command::new(binary).arg("man").arg(&pages))?;
    let pages = fs::read_dir(&pages).context(pages.display())?.flatten().map(|page| page.path());
    let compressed = [stage.join("usr/share/doc/vvm/changelog")].into_iter().chain(pages);
    // `-n`: the same content gives the same file.
    process::run(Command::new("gzip").args(["-9", "-n"]).args(compressed))?;
    for folder in ["etc", "lib", "usr", "DEBIAN"] {
        open_to_all(&stage.join(folder))?;
    }
    Ok(())
}

/// Sets the modes of folders, whatever the mask of this process is.
fn open_to_all(path: &Path) -> Result<()> {
    let is_folder = path.is_dir();
    let is_program = path.metadata().is_ok_and(|file| file.permissions().mode() & 0o100 != 0);
    let mode = if is_folder || is_program { 0o755 } else { 0o644 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).context(path.display())?;
    if is_folder {
        for entry in fs::read_dir(path).context(path.display())? {
            open_to_all(&entry.context(path.display())?.path())?;
        }
    }
    Ok(())
}

fn control(stage: &Path, binary: &Path, version: &str, architecture: &str) -> Result<String> {
    let size =
        stdout(Command::new("du").args(["--summarize", "--apparent-size", "-k"]).arg(stage))?;
    let size = size.split_whitespace().next().unwrap_or("0");
    let program = fs::read(binary).context(binary.display())?;
    let Some(libc) = needed_libc(&program) else {
        return failed(format!("{} needs no glibc: is it a program for Linux?", binary.display()));
    };
    Ok(format!(
        "Package: vvm\n\
         Version: {version}\n\
         Architecture: {architecture}\n\
         Maintainer: The maintainers of VVM <maintainers@vvm.invalid>\n\
         Installed-Size: {size}\n\
         Depends: libc6 (>= {libc}), libgcc-s1, passwd, procps\n\
         Section: database\n\
         Priority: optional\n\
         Description: node of an event-sourced application platform\n \
         VVM takes commands over HTTP, and turns each accepted command into one event\n \
         of a log. It keeps its data in a file, in Apache Cassandra or in Amazon\n \
         DynamoDB. Nodes that share a storage form a cluster.\n"
    ))
}

/// Returns the newest version of glibc that a program names: `2.34` for `GLIBC_2.34`.
fn needed_libc(program: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"GLIBC_2.";
    let minors = program.windows(NAME.len()).enumerate().filter(|(_, bytes)| *bytes == NAME);
    let minors = minors.filter_map(|(at, _)| {
        let rest = &program[at + NAME.len()..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&rest[..digits]).ok()?.parse::<u32>().ok()
    });
    minors.max().map(|minor| format!("2.{minor}"))
}

fn version_of(binary: &Path) -> Result<String> {
    let text = stdout(Command::new(binary).arg("--version"))?;
    let version = text.trim().strip_prefix("vvm ").map(str::to_owned);
    version.ok_or_else(|| Error::Failed(format!("{} is not vvm: {text}", binary.display())))
}

fn stdout(command: &mut Command) -> Result<String> {
    let output = command.output().context(command.get_program().to_string_lossy())?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        return failed(format!("{command:?}: {}: {errors}", output.status));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).context(from.display())?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).context(to.display())
}

fn write(to: &Path, text: &str, mode: u32) -> Result<()> {
    make_parent(to)?;
    fs::write(to, text).context(to.display())?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).context(to.display())
}

fn make_parent(path: &Path) -> Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all).context(path.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_glibc_that_a_program_names_is_found() {
        let found = |text: &str| needed_libc(text.as_bytes());
        assert_eq!(found("..GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0").as_deref(), Some("2.34"));
        assert_eq!(found("GLIBC_2."), None);
        assert_eq!(found(""), None);
    }
}
