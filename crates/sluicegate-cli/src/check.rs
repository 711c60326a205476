//! `sluice check`: asks a running server.
//!
//! `ask.rs` speaks to it, `reply.rs` reads what it says, `answer.rs` puts it in words.

mod answer;
mod ask;
mod reply;

use crate::Problem;
use crate::args::CheckArgs;
use answer::Answer;
use ask::Server;
use std::process::ExitCode;

pub(crate) fn run(args: &CheckArgs) -> Result<ExitCode, Problem> {
    if let Some(word) = args.stray.first() {
        return Err(format!(
            "{word:?} stands alone; quote the limit, as in sluice check 'sliding-log 5/60s' user:42"
        ));
    }
    let password = password(args)?;
    let mut server = Server::connect(&args.server, args.ca.as_deref(), password.is_some())?;
    if let Some(password) = password {
        server.ask(&[b"AUTH", &password])?;
    }
    let verb: &[u8] = if args.peek { b"RL.PEEK" } else { b"RL.CHECK" };
    let cost = args.cost.to_string();
    let said = server.ask(&[verb, args.rule.as_bytes(), args.key.as_bytes(), b"COST", cost.as_bytes()])?;
    let answer = Answer::read(&said).ok_or_else(|| {
        format!("{} does not reply like sluice serve; is it a sluice server of this version?", args.server)
    })?;
    let line = if args.json { answer.json()? } else { answer.words(args.peek) };
    crate::print(&(line + "\n"))?;
    Ok(ExitCode::from(u8::from(!answer.allowed)))
}

/// The password, if there is one. Of two we do not choose, nor does `sluice serve`.
fn password(args: &CheckArgs) -> Result<Option<Vec<u8>>, Problem> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let file_variable = variable("SLUICE_PASSWORD_FILE");
    if let Some(said) = variable("SLUICE_PASSWORD") {
        let other = match (&args.password_file, file_variable) {
            (Some(_), _) => "--password-file",
            (None, Some(_)) => "SLUICE_PASSWORD_FILE",
            (None, None) => return Ok(Some(said.into_encoded_bytes())),
        };
        return Err(format!("SLUICE_PASSWORD: {other} is set too; use one of them"));
    }
    let file = args.password_file.clone().or_else(|| file_variable.map(Into::into));
    file.map(|path| sluicegate_server::config::read_password(&path).map(|(password, _)| password)).transpose()
}
