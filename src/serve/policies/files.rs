//! The policy files of a run: what is read, and whether it has changed.
//!
//! A directory is read with all below it. Names that begin with a dot are passed over, which is how the mount of a ConfigMap
//! hides the directories between which it switches. Read while such a switch happens, files would be of two sets: what is read
//! counts only if nothing had changed when the last file was read.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use portcullis_policy::SourceFile;

/// Suffixes of policy files.
pub(crate) const SUFFIXES: [&str; 3] = ["yaml", "yml", "json"];
/// All files together may be so large: a set of 500 policies has a few megabytes.
const LARGEST: u64 = 32 * 1024 * 1024;
/// How deep directories are followed: links may lead in circles.
const DEEPEST: usize = 8;
/// How often files are read again that have changed under the reading.
const ATTEMPTS: usize = 5;

/// Why files cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FilesError {
    /// A path that is not there, or may not be read.
    #[error("cannot read {path}: {problem}")]
    Unreadable {
        /// The path as it was given, or of the file below it.
        path: String,
        /// What the system says.
        problem: String,
    },
    /// Not one file.
    #[error("there is no policy file (.yaml, .yml, .json) in {0}")]
    Empty(String),
    /// Too much.
    #[error(
        "the files in {paths} have {bytes} bytes, more than {LARGEST}: name the directory of the policies alone"
    )]
    TooLarge {
        /// What was asked for.
        paths: String,
        /// How much there is.
        bytes: u64,
    },
    /// They never stood still.
    #[error("the files in {0} change all the time: they are read again in a second")]
    Restless(String),
}

/// What is known of files without reading them: unequal when any has changed, come or gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint(Vec<(PathBuf, u64, Option<SystemTime>, u64)>);

impl Fingerprint {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, length, ..)| length).sum()
    }
}

/// The files below these paths, in order, as they are now.
///
/// # Errors
/// When a path is not there or may not be read.
pub(crate) fn fingerprint(paths: &[PathBuf]) -> Result<Fingerprint, FilesError> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    for path in paths {
        for file in below(path)? {
            let metadata = fs::metadata(&file).map_err(|error| unreadable(&file, &error))?;
            found.push((file, metadata.len(), metadata.modified().ok(), metadata.ino()));
        }
    }
    Ok(Fingerprint(found))
}

fn unreadable(path: &Path, problem: &std::io::Error) -> FilesError {
    FilesError::Unreadable { path: path.display().to_string(), problem: problem.to_string() }
}

/// A file, whatever its name, or the policy files below a directory, in order.
///
/// # Errors
/// When the path is not there or may not be read.
pub(crate) fn below(path: &Path) -> Result<Vec<PathBuf>, FilesError> {
    let mut found = Vec::new();
    visit(path, 0, &mut found)?;
    Ok(found)
}

fn visit(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), FilesError> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if !metadata.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    if depth == DEEPEST {
        return Ok(());
    }
    entries(path)?.iter().try_for_each(|entry| visit(entry, depth + 1, found))
}

/// The policy files and the directories right in a directory, in order.
///
/// # Errors
/// When it may not be read.
pub(crate) fn entries(directory: &Path) -> Result<Vec<PathBuf>, FilesError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| unreadable(directory, &error))? {
        let entry = entry.map_err(|error| unreadable(directory, &error))?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let entry = entry.path();
        if !hidden && (is_policy(&entry) || entry.is_dir()) {
            entries.push(entry);
        }
    }
    entries.sort();
    Ok(entries)
}

/// Whether the name is that of a policy file.
pub(crate) fn is_policy(path: &Path) -> bool {
    path.extension().is_some_and(|suffix| SUFFIXES.iter().any(|known| suffix == *known))
}

/// Reads one file.
///
/// # Errors
/// When it is not there or may not be read.
pub(crate) fn one(path: &Path) -> Result<SourceFile, FilesError> {
    let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
    Ok(SourceFile { name: path.display().to_string(), bytes })
}

/// Reads all files below these paths, all of one moment.
///
/// # Errors
/// When a path cannot be read, or there is no file at all.
pub(crate) fn read(paths: &[PathBuf]) -> Result<(Fingerprint, Vec<SourceFile>), FilesError> {
    let named = || paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    for _ in 0..ATTEMPTS {
        let before = fingerprint(paths)?;
        if before.0.is_empty() {
            return Err(FilesError::Empty(named()));
        }
        if before.bytes() > LARGEST {
            return Err(FilesError::TooLarge { paths: named(), bytes: before.bytes() });
        }
        let files: Result<Vec<SourceFile>, FilesError> =
            before.0.iter().map(|(path, ..)| one(path)).collect();
        if fingerprint(paths).as_ref() != Ok(&before) {
            continue;
        }
        return Ok((before, files?));
    }
    Err(FilesError::Restless(named()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("portcullis-policy-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a temporary directory");
        path
    }

    fn names(directory: &Path) -> Vec<String> {
        let (_, files) = read(&[directory.to_owned()]).expect("readable");
        let short = |file: &SourceFile| {
            let name = Path::new(&file.name).strip_prefix(directory).expect("below").display().to_string();
            format!("{name}={}", String::from_utf8_lossy(&file.bytes))
        };
        files.iter().map(short).collect()
    }

    /// As the kubelet shows a ConfigMap, and as it changes one.
    fn mount(directory: &Path, version: &str, files: &[(&str, &str)]) {
        use std::os::unix::fs::symlink;
        let data = directory.join(format!("..{version}"));
        fs::create_dir_all(&data).expect("made");
        for (name, text) in files {
            fs::write(data.join(name), text).expect("written");
            let shown = directory.join(name);
            if fs::symlink_metadata(&shown).is_err() {
                symlink(Path::new("..data").join(name), shown).expect("linked");
            }
        }
        let (next, current) = (directory.join("..data_tmp"), directory.join("..data"));
        symlink(format!("..{version}"), &next).expect("linked");
        fs::rename(next, current).expect("renamed");
    }

    #[test]
    fn a_config_map_is_read_as_it_is_shown_and_seen_to_change() {
        let directory = directory("mount");
        mount(&directory, "1", &[("b.yaml", "old"), ("a.json", "{}"), ("notes.txt", "no")]);
        assert_eq!(names(&directory), ["a.json={}", "b.yaml=old"]);
        let paths = [directory.clone()];
        let before = fingerprint(&paths).expect("readable");
        assert_eq!(fingerprint(&paths), Ok(before.clone()));
        mount(&directory, "2", &[("b.yaml", "new"), ("a.json", "{}"), ("notes.txt", "no")]);
        assert_eq!(names(&directory), ["a.json={}", "b.yaml=new"]);
        assert_ne!(fingerprint(&paths), Ok(before));
        fs::remove_dir_all(directory).expect("removed");
    }

    #[test]
    fn files_and_directories_are_read_in_order_and_nothing_is_an_error() {
        let directory = directory("order");
        fs::create_dir_all(directory.join("teams")).expect("made");
        for name in ["z.yaml", "teams/a.yml", ".hidden.yaml"] {
            fs::write(directory.join(name), "x").expect("written");
        }
        assert_eq!(names(&directory), ["teams/a.yml=x", "z.yaml=x"]);
        let empty = directory.join("empty");
        fs::create_dir_all(&empty).expect("made");
        let problem = read(&[empty]).expect_err("empty").to_string();
        assert!(problem.starts_with("there is no policy file"), "{problem}");
        let missing = read(&[directory.join("missing")]).expect_err("missing").to_string();
        assert!(missing.starts_with("cannot read ") && missing.contains("No such file"), "{missing}");
        fs::remove_dir_all(directory).expect("removed");
    }
}
