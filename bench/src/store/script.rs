//! A script and its keys and arguments, ready to be asked for.

use crate::server::Outcome;
use crate::server::client::{Client, Reply};
use crate::server::requests::Template;

/// One call of a script. In keys and arguments [`KEY`](crate::server::requests::KEY) stands for the
/// key that changes.
#[derive(Clone)]
pub struct Script {
    pub text: String,
    pub keys: Vec<Vec<u8>>,
    pub arguments: Vec<Vec<u8>>,
}

impl Script {
    /// A script of the rivals: one key, and arguments.
    pub fn rival(text: &str, arguments: &[&str]) -> Script {
        // The prefix that redis_rate has. The others are given the same.
        let key = format!("rate:{}", crate::server::requests::KEY);
        let arguments = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
        Script { text: text.to_owned(), keys: vec![key.into_bytes()], arguments }
    }

    /// The same in a name space of its own, so that measurements do not meet.
    pub fn apart(mut self, name: &str) -> Script {
        for key in &mut self.keys {
            *key = [name.as_bytes(), key].concat();
        }
        self
    }

    /// Loads it, and gives the command that calls it: `EVALSHA sha n key... argument...`.
    pub fn load(&self, client: &mut Client) -> Outcome<Template> {
        let loaded = client.call(&["SCRIPT", "LOAD", &self.text]).map_err(|error| error.to_string())?;
        let sha = match &loaded {
            Reply::Other(text) => text.lines().nth(1).unwrap_or_default(),
            _ => return Err(format!("a script cannot be loaded: {loaded:?}")),
        };
        let mut words =
            ["EVALSHA", sha, &self.keys.len().to_string()].map(|word| word.as_bytes().to_vec()).to_vec();
        words.extend(self.keys.iter().chain(&self.arguments).cloned());
        if let Reply::Error(error) = client.call(&words).map_err(|error| error.to_string())? {
            return Err(format!("a script answers: {error}"));
        }
        Ok(Template::new(&words))
    }
}
