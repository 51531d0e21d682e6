//! The arguments of the commands for tokens.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::{Args, Subcommand};
use http_server::access::{Right, Workspaces};

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a key that signs tokens, and the file with its public part for the nodes.
    Keygen(KeygenArgs),
    /// Make a token, and print it or write it to a file.
    New(NewTokenArgs),
    /// Print what a token says.
    Show(ShowTokenArgs),
}

#[derive(Debug, Args)]
pub(crate) struct KeygenArgs {
    /// The new file with the private key. Everybody with the file can make tokens.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,

    /// The new file with the public key, for `keys_file` in the section `access` of the nodes.
    #[arg(long, value_name = "FILE")]
    pub(crate) public: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct NewTokenArgs {
    /// The private key.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,

    /// The issuer, as `access.issuer` of the nodes names it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) issuer: String,

    /// The audience, as `access.audience` of the nodes names it.
    #[arg(long, value_name = "TEXT", default_value = "vvm")]
    pub(crate) audience: String,

    /// The name of the principal, the sender of the requests.
    #[arg(long, value_name = "TEXT")]
    pub(crate) subject: String,

    /// The application, or `*` for all.
    #[arg(long, value_name = "OWNER/NAME")]
    pub(crate) app: String,

    /// The workspaces, such as `7,8`, or `*` for all.
    #[arg(long, value_name = "NUMBERS", value_parser = workspaces)]
    pub(crate) workspaces: Workspaces,

    /// The rights: `read`, `write` and `admin`, with commas between them. An operator of a node
    /// needs `admin` in all workspaces of all applications.
    #[arg(long, value_name = "RIGHTS", value_delimiter = ',', required = true, value_parser = right)]
    pub(crate) rights: Vec<Right>,

    /// The time for which the token is valid, such as `90s`, `15m`, `8h` or `30d`.
    #[arg(long = "for", value_name = "TIME", value_parser = lifetime)]
    pub(crate) lifetime: Duration,

    /// The file for the token, which only its owner can read. The file must not exist, or hold a
    /// former token. Without this option the token is printed.
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowTokenArgs {
    /// The token, or `-` to read it from the standard input. Other users of the machine can see a
    /// token on the command line.
    pub(crate) token: String,

    /// Also check the token with these public keys. The command ends with 1 if a node with these
    /// keys, the audience and the issuer refuses the token.
    #[arg(long, value_name = "FILE")]
    pub(crate) keys: Option<PathBuf>,

    /// The issuer, as `access.issuer` of the nodes names it. Without this option the issuer is not
    /// checked.
    #[arg(long, value_name = "TEXT", requires = "keys")]
    pub(crate) issuer: Option<String>,

    /// The audience, as `access.audience` of the nodes names it.
    #[arg(long, value_name = "TEXT", default_value = "vvm", requires = "keys")]
    pub(crate) audience: String,
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

#[cfg(test)]
mod tests {
    use super::*;

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
