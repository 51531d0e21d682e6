//! `vvm token`: keys and tokens, without an issuer.

use std::{
    fs::{self, Permissions},
    io::{self, ErrorKind, Read as _, Write as _},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::ExitCode,
    str::FromStr,
    time::Duration,
};

use clap::{Args, Subcommand};
use clock::Clock;
use http_server::access::{
    Grant, Grants, KeySet, NewToken, Right, SigningError, SigningKey, TokenContent, TokenRules,
    TokenVerifier, Workspaces,
};
use tempfile::NamedTempFile;

use crate::{
    CommandError,
    private_file::needless_readers,
    terminal::{print, say},
};

#[derive(Debug, Subcommand)]
pub enum TokenCommand {
    /// Make a key that signs tokens, and the file with its public part for the nodes.
    Keygen(KeygenArgs),
    /// Make a token, and print it or write it to a file.
    New(NewTokenArgs),
    /// Print what a token says.
    Show(ShowTokenArgs),
}

#[derive(Debug, Args)]
pub struct KeygenArgs {
    /// The new file with the private key. Everybody with the file can make tokens.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,

    /// The new file with the public key, for `keys_file` in the section `access` of the nodes.
    #[arg(long, value_name = "FILE")]
    public: PathBuf,
}

#[derive(Debug, Args)]
pub struct NewTokenArgs {
    /// The private key.
    #[arg(long, value_name = "FILE")]
    key: PathBuf,

    /// The issuer, as `access.issuer` of the nodes names it.
    #[arg(long, value_name = "TEXT")]
    issuer: String,

    /// The audience, as `access.audience` of the nodes names it.
    #[arg(long, value_name = "TEXT", default_value = "vvm")]
    audience: String,

    /// The name of the principal, the sender of the requests.
    #[arg(long, value_name = "TEXT")]
    subject: String,

    /// The application, or `*` for all.
    #[arg(long, value_name = "OWNER/NAME")]
    app: String,

    /// The workspaces, such as `7,8`, or `*` for all.
    #[arg(long, value_name = "NUMBERS", value_parser = workspaces)]
    workspaces: Workspaces,

    /// The rights: `read`, `write` and `admin`, with commas between them. An operator of a node
    /// needs `admin` in all workspaces of all applications.
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',', required = true, value_parser = right)]
    rights: Vec<Right>,

    /// How long the token is valid, such as `90s`, `15m`, `8h` or `30d`.
    #[arg(long = "for", value_name = "TIME", value_parser = lifetime)]
    lifetime: Duration,

    /// The file for the token, which only its owner can read. The file must not exist, or hold a
    /// former token. Without this option the token is printed.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct ShowTokenArgs {
    /// The token, or `-` to read it from the standard input. Other users of the machine can see a
    /// token on the command line.
    token: String,

    /// Also check the token with these public keys. The command ends with 1 if a node with these
    /// keys, the audience and the issuer refuses the token.
    #[arg(long, value_name = "FILE")]
    keys: Option<PathBuf>,

    /// The issuer, as `access.issuer` of the nodes names it. Without this option the issuer is not
    /// checked.
    #[arg(long, value_name = "TEXT", requires = "keys")]
    issuer: Option<String>,

    /// The audience, as `access.audience` of the nodes names it.
    #[arg(long, value_name = "TEXT", default_value = "vvm", requires = "keys")]
    audience: String,
}

fn right(text: &str) -> Result<Right, &'static str> {
    [Right::Read, Right::Write, Right::Admin]
        .into_iter()
        .find(|right| right.name() == text)
        .ok_or("a right is `read`, `write` or `admin`")
}

fn workspaces(text: &str) -> Result<Workspaces, &'static str> {
    if text == "*" {
        return Ok(Workspaces::All);
    }
    let numbers = text.split(',').map(u64::from_str).collect::<Result<_, _>>();
    numbers.map(Workspaces::These).map_err(|_| "numbers of workspaces are expected, or `*`")
}

fn lifetime(text: &str) -> Result<Duration, &'static str> {
    const EXPECTED: &str = "a time is expected, such as 90s, 15m, 8h or 30d";
    let seconds = match text.char_indices().last().ok_or(EXPECTED)? {
        (at, 's') => (at, 1),
        (at, 'm') => (at, 60),
        (at, 'h') => (at, 3_600),
        (at, 'd') => (at, 86_400),
        _ => return Err(EXPECTED),
    };
    let (at, unit) = seconds;
    let count: u32 = text[..at].parse().map_err(|_| EXPECTED)?;
    match u64::from(count) * unit {
        0 => Err("a token needs a time of at least 1s"),
        seconds => Ok(Duration::from_secs(seconds)),
    }
}

/// Why a file of public keys makes no token.
const PUBLIC_KEYS: &str = "the file holds public keys, for `access.keys_file` of the nodes: give the \
                           file with the private key, which `vvm token keygen --out FILE` has written";

/// Only the owner reads and writes the file.
const PRIVATE: u32 = 0o600;
const PUBLIC: u32 = 0o644;

pub(crate) fn run(command: TokenCommand) -> Result<ExitCode, CommandError> {
    let now = Clock::system().wall().as_millis() / 1_000;
    match command {
        TokenCommand::Keygen(args) => keygen(&args)?,
        TokenCommand::New(args) => {
            let out = args.out.clone();
            let token = new_token(args, now)?;
            match out {
                Some(path) => write_token(&path, &token)?,
                None => print(&format!("{token}\n"))?,
            }
        }
        TokenCommand::Show(args) => {
            let (text, is_refused) = shown(&args, now)?;
            print(&text)?;
            if is_refused {
                return Ok(ExitCode::FAILURE);
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn keygen(KeygenArgs { out, public }: &KeygenArgs) -> Result<(), CommandError> {
    let failed = |error: SigningError| CommandError::unfinished(error.to_string());
    if let Some(there) = [out, public].into_iter().find(|path| path.exists()) {
        let why = "the file is there already: choose another name";
        return Err(CommandError::usage(format!("{}: {why}", there.display())));
    }
    if out == public {
        let why = "both files cannot have one name: the nodes must not get the private key";
        return Err(CommandError::usage(format!("{}: {why}", out.display())));
    }
    let key = SigningKey::generate().map_err(failed)?;
    write_new(out, PRIVATE, &key.to_private().map_err(failed)?)?;
    if let Err(error) = write_new(public, PUBLIC, &key.public_keys()) {
        // Without its public key the private key is useless, and its file would stop the next try.
        let _ = fs::remove_file(out);
        return Err(error);
    }
    print(&format!(
        "private key {}: {}\npublic key for the nodes: {}\n",
        key.id(),
        out.display(),
        public.display()
    ))
}

/// The error of a file that cannot be written.
fn unwritten(what: &str, path: &Path, error: &io::Error) -> CommandError {
    let why = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.exists() => {
            format!("the folder {} does not exist: make it", folder.display())
        }
        _ => error.to_string(),
    };
    CommandError::unfinished(format!("cannot write the {what} {}: {why}", path.display()))
}

/// Writes a line to a temporary file beside `path`. A command that is killed leaves this file, so
/// its name tells the operator what it is.
fn written(path: &Path, mode: u32, line: &str) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let mut prefix = path.file_name().unwrap_or_default().to_owned();
    prefix.push(".");
    let mut file = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(".partial")
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(format!("{line}\n").as_bytes())?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// Writes a file that does not exist yet. A key that is overwritten cannot be made again.
fn write_new(path: &Path, mode: u32, text: &str) -> Result<(), CommandError> {
    let named = written(path, mode, text).and_then(|file| Ok(file.persist_noclobber(path)?));
    named.map(drop).map_err(|error| unwritten("key file", path, &error))
}

/// Writes a token to a file that only its owner can read. A former token is replaced at once, so
/// that running commands find one token or the other. Another file is kept: it may be a key.
fn write_token(path: &Path, token: &str) -> Result<(), CommandError> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Ok(former) if TokenContent::read(former.trim()).is_ok() => {}
        _ => {
            let why = "the file is there already, and holds no token: choose another name";
            return Err(CommandError::usage(format!("{}: {why}", path.display())));
        }
    }
    let named = written(path, PRIVATE, token).and_then(|file| Ok(file.persist(path)?));
    named.map(drop).map_err(|error| unwritten("token file", path, &error))
}

fn new_token(args: NewTokenArgs, now: u64) -> Result<String, CommandError> {
    let NewTokenArgs { key, issuer, audience, subject, app, workspaces, rights, lifetime, .. } =
        args;
    let app = (app != "*").then_some(app);
    let grants = Grants::new([Grant::new(app, workspaces, rights)]);
    let checked: Result<Grants, _> = grants.to_string().parse();
    let grants = checked.map_err(|error| CommandError::usage(error.to_string()))?;
    let signing_key = signing_key(&key)?;
    if let Some(readers) = needless_readers(&key) {
        let file = key.display();
        say(format!("warning: {readers} can read {file}, and make tokens: run `chmod 600 {file}`"));
    }
    let expires = now + lifetime.as_secs();
    let token = NewToken { issuer, audience, subject, issued: now, expires, grants };
    signing_key.sign(&token).map_err(|error| CommandError::usage(error.to_string()))
}

/// Reads a private key. The file of public keys has a similar name, and signs nothing.
fn signing_key(path: &Path) -> Result<SigningKey, CommandError> {
    let text = text_of("key file", path)?;
    SigningKey::from_private(&text).map_err(|error| {
        let why = match KeySet::parse(text.as_bytes()) {
            Ok(_) => PUBLIC_KEYS.to_owned(),
            Err(_) => error.to_string(),
        };
        CommandError::usage(format!("{}: {why}", path.display()))
    })
}

/// Returns the text, and whether a node with the given keys refuses the token.
fn shown(args: &ShowTokenArgs, now: u64) -> Result<(String, bool), CommandError> {
    let ShowTokenArgs { token, keys, issuer, audience } = args;
    let mut read = String::new();
    let token = match &**token {
        "-" => {
            let failed = |error| CommandError::unfinished(format!("the standard input: {error}"));
            io::stdin().read_to_string(&mut read).map_err(failed)?;
            read.trim()
        }
        token => token,
    };
    let content = TokenContent::read(token).map_err(|error| {
        let hint = match Path::new(token).exists() {
            true => format!(": to show the token in a file: `vvm token show - <{token}`"),
            false => String::new(),
        };
        CommandError::usage(format!("{error}{hint}"))
    })?;
    let left = match content.claims["exp"].as_f64().map(|expires| expires as u64) {
        Some(expires) if expires >= now => format!("it ends in {} s", expires - now),
        Some(expires) => format!("it ended {} s ago", now - expires),
        None => "it has no end (`exp`): nodes refuse it".to_owned(),
    };
    let checked = match keys {
        None => {
            Ok("the signature was not checked: give the public keys with --keys FILE".to_owned())
        }
        Some(path) => {
            let keys = KeySet::parse(text_of("file of public keys", path)?.as_bytes())
                .map_err(|error| CommandError::usage(format!("{}: {error}", path.display())))?;
            let named = content.claims["iss"].as_str().unwrap_or_default();
            let rules = TokenRules::new(issuer.as_deref().unwrap_or(named), audience);
            checked(token, rules, keys, now, issuer.is_some())
        }
    };
    let is_refused = checked.is_err();
    let checked = checked.unwrap_or_else(|refused| refused);
    let TokenContent { header, claims, .. } = content;
    Ok((format!("header {header:#}\nclaims {claims:#}\n{left}\n{checked}\n"), is_refused))
}

/// Checks a token as a node with these rules and keys does. The error says why the node refuses the
/// token.
fn checked(
    token: &str,
    rules: TokenRules,
    keys: KeySet,
    now: u64,
    is_issuer_given: bool,
) -> Result<String, String> {
    let audience = rules.audience.clone();
    let caller = TokenVerifier::new(rules, keys)
        .verify(token, now)
        .map_err(|why| format!("a node with these keys refuses the token: {why}"))?;
    let good = format!(
        "a node with these keys and the audience `{audience}` takes the token of {}",
        caller.principal
    );
    Ok(match is_issuer_given {
        true => good,
        false => format!(
            "{good}, if `access.issuer` of the node is that of the token: --issuer checks it"
        ),
    })
}

/// Returns the text of a file. `what` names the file for people.
fn text_of(what: &str, path: &Path) -> Result<String, CommandError> {
    fs::read_to_string(path).map_err(|error| {
        CommandError::usage(format!("cannot read the {what} {}: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error of a file that could not be made lacked the reason of the system.
    #[test]
    fn a_file_that_cannot_be_made_has_the_reason_of_the_system() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = write_new(&file.join("key"), PRIVATE, "{}").unwrap_err().to_string();
        assert!(error.contains("Not a directory (os error 20)"), "{error}");
    }

    #[test]
    fn a_lifetime_has_a_number_and_a_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("8h", 28_800), ("30d", 2_592_000)] {
            assert_eq!(lifetime(text).unwrap(), Duration::from_secs(seconds));
        }
        for wrong in ["", "h", "1", "1.5h", "-1h", "1w", "0s", "1 h", "99999999999s", "1é"] {
            assert!(lifetime(wrong).is_err(), "{wrong}");
        }
        assert_eq!(workspaces("7,8").unwrap(), Workspaces::These([7, 8].into()));
        assert_eq!(workspaces("*").unwrap(), Workspaces::All);
        for wrong in ["", "7,", "*,7", "-1", "a"] {
            assert!(workspaces(wrong).is_err(), "{wrong}");
        }
    }
}
