//! The command line: what a person types, what they read, and the exit code a script goes by.
//!
//! Owns arguments, wording and layout of terminal output. Never decides anything about a pod or a gang: it asks the
//! library and shows the answer. Invariant: what is printed to stdout is the answer, what goes to stderr is about the run.

mod check;
mod demo;
mod doctor;
mod eval;
mod exit_status;
mod manifest;
mod policy;
mod policy_set;
mod replay;
mod review;
mod seeds;
mod serve;
mod simulate;
mod step_output;
mod styles;
mod test;
mod version;

use std::io;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand, ValueEnum};

use exit_status::ExitStatus;

const ABOUT: &str =
    "The gang gate for GPU clusters: the pods of a group start together, or none of them does";

const BEFORE: &str = "Portcullis stands in front of the Kubernetes scheduler. Every pod of a gang (pods that only make \
sense together) waits behind a scheduling gate; when there is room for the whole gang, GPU memory of every card \
included, all gates are lifted at once.";

const EXAMPLES: &str = "\
Start here:
  portcullis demo                        watch a gang being gated, planned and lifted (no cluster needed)
  portcullis review app.yaml             what would the webhook say to these manifests?
  portcullis test policies/              do the rules of the platform team do what they should?
  kubectl get deploy x -o yaml | portcullis review -

Exit codes:
  0  everything was as it should be
  1  the answer is no: a manifest was rejected, or an expectation did not hold
  2  no answer: bad arguments, an unreadable file, a port in use
  3  bad arguments, for commands about policies (check, eval, policy, replay, test): there 2 is a policy that cannot be used

`portcullis COMMAND --help` explains a command with examples.";

#[derive(Debug, Parser)]
#[command(name = "portcullis", version, about = ABOUT, long_about = BEFORE, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    /// Colours: on a terminal only, always, or never (NO_COLOR is respected)
    #[arg(long, value_name = "WHEN", global = true, default_value = "auto", hide_possible_values = true)]
    color: Colour,
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Colour {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::CheckArgs),
    Demo(demo::DemoArgs),
    Doctor(doctor::DoctorArgs),
    Eval(eval::EvalArgs),
    Policy(policy::PolicyArgs),
    Replay(replay::ReplayArgs),
    Review(review::ReviewArgs),
    Serve(Box<serve::ServeArgs>),
    Simulate(simulate::SimulateArgs),
    Test(test::TestArgs),
    Version(version::VersionArgs),
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return refused(&error),
    };
    match arguments.color {
        Colour::Auto => anstream::ColorChoice::Auto,
        Colour::Always => anstream::ColorChoice::Always,
        Colour::Never => anstream::ColorChoice::Never,
    }
    .write_global();
    match run(arguments.command) {
        Ok(outcome) => outcome.code(),
        // `portcullis review x | head`: the reader has seen enough, which is no mistake of ours.
        Err(error) if is_broken_pipe(&error) => ExitStatus::Success.code(),
        Err(error) => {
            styles::print_error(&format!("{error:#}"));
            ExitStatus::Failure.code()
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitStatus> {
    match command {
        Command::Check(args) => check::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Policy(args) => policy::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Review(args) => review::run(&args),
        Command::Serve(args) => serve::run(*args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Test(args) => test::run(&args),
        Command::Version(args) => version::run(&args),
    }
}

/// The commands that tell a bad policy (2) from a question that makes no sense (3).
const ABOUT_POLICIES: [&str; 5] = ["check", "eval", "policy", "replay", "test"];

/// Arguments that are none, or a request for help.
fn refused(error: &clap::Error) -> ExitCode {
    // There is nobody left to tell when even that fails.
    drop(error.print());
    if !error.use_stderr() {
        return ExitStatus::Success.code();
    }
    // What comes before the command may be the value of an option.
    let commands = Arguments::command();
    let named = std::env::args_os().skip(1).find_map(|argument| commands.find_subcommand(argument));
    let outcome = if named.is_some_and(|command| ABOUT_POLICIES.contains(&command.get_name())) {
        ExitStatus::Usage
    } else {
        ExitStatus::Failure
    };
    outcome.code()
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_hold_together() {
        Arguments::command().debug_assert();
    }
}
