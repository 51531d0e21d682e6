//! Java, Maven and the jars of a server. Each is found, or fetched when it is needed.

use std::{
    env,
    ffi::OsStr,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    error::{Error, ErrorContext, Result, failed},
    folders, process,
};

/// The version of Java. Cassandra 5 runs on Java 11 and 17, and DynamoDB Local on 17 and later.
const VERSION: &str = "17";
const JAVA_PACKAGE: &str = "openjdk-17-jre-headless";
const MAVEN_PACKAGE: &str = "maven";

/// Returns the `java` that runs servers. If it is missing and this user may install packages, the
/// function installs it.
pub(crate) fn java() -> Result<PathBuf> {
    if let Some(java) = find_java() {
        return Ok(java);
    }
    install(&format!("Java {VERSION}"), JAVA_PACKAGE)?;
    find_java().ok_or_else(|| {
        Error::Failed(format!("{JAVA_PACKAGE} is installed, but no java {VERSION} is found"))
    })
}

/// Returns the folder with the jars that `pom` asks for. They are fetched once, and again when the
/// pom changes.
pub(crate) fn jars(java: &Path, name: &str, pom: &Path) -> Result<PathBuf> {
    let text = fs::read(pom).context(pom.display())?;
    let jars = folders::cache()?.join("jars");
    let folder = jars.join(format!("{name}-{:016x}", hash(&text)));
    if folder.is_dir() {
        return Ok(folder);
    }
    // The jars are fetched under another name, so that an interrupted fetch is never taken for a
    // complete one.
    let partial = jars.join(format!("{name}.partial-{}", std::process::id()));
    fs::create_dir_all(&partial).context(partial.display())?;
    let fetched = fetch(java, name, pom, &partial);
    if fetched.is_ok() && fs::rename(&partial, &folder).is_ok() {
        return Ok(folder);
    }
    fs::remove_dir_all(&partial).context(partial.display())?;
    fetched?;
    // Another process may have fetched the same jars meanwhile.
    if folder.is_dir() { Ok(folder) } else { failed(format!("cannot create {}", folder.display())) }
}

fn fetch(java: &Path, name: &str, pom: &Path, into: &Path) -> Result<()> {
    let maven = maven()?;
    eprintln!("[{name}] fetching its jars with Maven (once, about a minute)");
    let mut command = Command::new(maven);
    command
        .args(["-q", "-B", "-Dstyle.color=never", "-f"])
        .arg(pom)
        .arg("dependency:copy-dependencies");
    command.arg(format!("-DoutputDirectory={}", into.display()));
    if let Some(home) =
        java.canonicalize().ok().as_deref().and_then(Path::parent).and_then(Path::parent)
    {
        command.env("JAVA_HOME", home);
    }
    process::run(&mut command)
}

/// Returns a hash that is only compared with names that this program made. Any hash will do that is
/// the same in each run.
fn hash(text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn maven() -> Result<PathBuf> {
    if let Some(maven) = on_path("mvn") {
        return Ok(maven);
    }
    install("Maven", MAVEN_PACKAGE)?;
    on_path("mvn")
        .ok_or_else(|| Error::Failed(format!("{MAVEN_PACKAGE} is installed, but no mvn is found")))
}

/// Returns the first Java of the right version: the one in JAVA_HOME, the one in PATH, or one of
/// those that Linux distributions put beside each other.
fn find_java() -> Option<PathBuf> {
    let home = env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let installed = fs::read_dir("/usr/lib/jvm")
        .into_iter()
        .flatten()
        .flatten()
        .map(|e| e.path().join("bin/java"));
    home.into_iter().chain(on_path("java")).chain(installed).find(|java| is_right_version(java))
}

fn is_right_version(java: &Path) -> bool {
    // Java prints its version on standard error.
    let output = Command::new(java).arg("-version").output();
    output.is_ok_and(|output| {
        major_version(&String::from_utf8_lossy(&output.stderr)) == Some(VERSION)
    })
}

/// Returns `17` from a line such as `openjdk version "17.0.15" 2025-04-15`.
fn major_version(text: &str) -> Option<&str> {
    text.split_once("version \"")?.1.split(['.', '"', '-']).next()
}

fn on_path(program: &str) -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(program))
        .find(|path| path.is_file())
}

/// Installs a package of the system if that is possible without a question. Otherwise the error
/// names the packages to install.
fn install(what: &str, package: &str) -> Result<()> {
    if on_path("apt-get").is_none() || !rustix::process::geteuid().is_root() {
        return failed(format!(
            "{what} is needed to run the test servers and is not found.\n\
             Debian, Ubuntu: sudo apt-get install {JAVA_PACKAGE} {MAVEN_PACKAGE}\n\
             Fedora: sudo dnf install java-17-openjdk-headless maven\n\
             macOS: brew install openjdk@17 maven, and set JAVA_HOME\n\
             Without servers: cargo xtask test --quick"
        ));
    }
    eprintln!("{what} is not found: installing the package {package}");
    apt_get(&["update"])?;
    apt_get(&["install", "-y", "--no-install-recommends", package])
}

fn apt_get(arguments: &[impl AsRef<OsStr>]) -> Result<()> {
    process::run(
        Command::new("apt-get")
            .args(["-qq", "-o", "Dpkg::Use-Pty=0"])
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_java_prints() {
        assert_eq!(
            major_version("openjdk version \"17.0.15\" 2025-04-15\nOpenJDK ..."),
            Some("17")
        );
        assert_eq!(major_version("openjdk version \"25\" 2025-09-16"), Some("25"));
        assert_eq!(major_version("openjdk version \"26-ea\" 2026-03-17"), Some("26"));
        assert_eq!(major_version("java version \"1.8.0_202\""), Some("1"));
        assert_eq!(major_version("command not found"), None);
    }

    #[test]
    fn another_pom_has_another_place() {
        assert_eq!(hash(b"5.0.5"), hash(b"5.0.5"));
        assert_ne!(hash(b"5.0.5"), hash(b"5.0.6"));
    }
}
