//! The command line: arguments, terminal output and exit codes.
//!
//! It never decides anything about a pod or a gang: it calls the library and prints the result. Invariant:
//! stdout has the result, stderr has messages about the run.

mod check;
mod demo;
mod doctor;
mod eval;
mod exit_status;
mod manifest;
mod planning_case;
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

const ABOUT: &str = "Gang admission for GPU clusters: all pods of a gang start together, or none of them";

const LONG_ABOUT: &str = "Portcullis works in front of the Kubernetes scheduler. Every pod of a gang (pods that must \
start together) gets a scheduling gate. When the whole gang fits, including the GPU memory of each card, Portcullis \
removes all gates of the gang at once.";

const EXAMPLES: &str = "\
Start here:
  portcullis demo                        watch the admission of a gang (no cluster needed)
  portcullis review app.yaml             show what the webhook would answer for these manifests
  portcullis test policies/              run the test cases of policy files
  kubectl get deploy x -o yaml | portcullis review -

Exit codes:
  0  success
  1  the answer is no: a manifest was denied, or an expectation failed
  2  error: bad arguments, an unreadable file, a port in use
  3  bad arguments of a policy command (check, eval, policy, replay, test), where 2 means an invalid policy

`portcullis COMMAND --help` shows the options and examples of a command.";

#[derive(Debug, Parser)]
#[command(name = "portcullis", version, about = ABOUT, long_about = LONG_ABOUT, after_help = EXAMPLES)]
#[command(subcommand_required = true, arg_required_else_help = true, max_term_width = 100)]
struct Arguments {
    /// When to use colours: auto (on a terminal), always or never; NO_COLOR is respected
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
        Err(error) => return report_argument_error(&error),
    };
    match arguments.color {
        Colour::Auto => anstream::ColorChoice::Auto,
        Colour::Always => anstream::ColorChoice::Always,
        Colour::Never => anstream::ColorChoice::Never,
    }
    .write_global();
    match run(arguments.command) {
        Ok(outcome) => outcome.code(),
        // In `portcullis review x | head` the reader closes the pipe early. That is not an error.
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

/// The commands that return 3 for bad arguments, because 2 means an invalid policy.
const POLICY_COMMANDS: [&str; 5] = ["check", "eval", "policy", "replay", "test"];

/// Prints an argument error or the requested help, and returns the exit code.
fn report_argument_error(error: &clap::Error) -> ExitCode {
    // A failure to print is ignored, because there is no other output.
    drop(error.print());
    if !error.use_stderr() {
        return ExitStatus::Success.code();
    }
    // An argument before the command may be the value of an option, so all arguments are searched.
    let commands = Arguments::command();
    let named = std::env::args_os().skip(1).find_map(|argument| commands.find_subcommand(argument));
    let status = if named.is_some_and(|command| POLICY_COMMANDS.contains(&command.get_name())) {
        ExitStatus::Usage
    } else {
        ExitStatus::Failure
    };
    status.code()
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
    fn the_argument_definitions_are_valid() {
        Arguments::command().debug_assert();
    }
}
