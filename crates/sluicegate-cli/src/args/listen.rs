//! The flags that say where to listen: one for each protocol of the server.

use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};
use sluicegate_server::protocol::{ByProtocol, Protocol};

#[derive(Debug)]
pub(crate) struct ListenArgs(pub(crate) ByProtocol<Option<String>>);

impl Args for ListenArgs {
    fn augment_args(command: Command) -> Command {
        command.args(Protocol::ALL.map(|protocol| {
            let about = protocol.description();
            let default = about.default_address.unwrap_or("off");
            Arg::new(about.id)
                .long(about.flag.trim_start_matches('-'))
                .value_name("ADDR")
                .help(format!("Where to listen for {protocol}: HOST:PORT, or off [default: {default}]"))
        }))
    }

    fn augment_args_for_update(command: Command) -> Command {
        ListenArgs::augment_args(command)
    }
}

impl FromArgMatches for ListenArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ListenArgs, Error> {
        let address = |protocol: Protocol| matches.get_one::<String>(protocol.description().id).cloned();
        Ok(ListenArgs(ByProtocol::new(address)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = ListenArgs::from_arg_matches(matches)?;
        Ok(())
    }
}
