//! Reads policy files and detects changes.
//!
//! Directories are read recursively. Names that begin with a dot are skipped: a mounted ConfigMap switches
//! between two hidden directories. During such a switch, files of both versions could be read. Therefore a
//! read is valid only if no file has changed when the last file has been read.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use portcullis_policy::SourceFile;

/// Extensions of policy files.
pub(crate) const POLICY_FILE_EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];
/// Maximum size of all files together. A set of 500 policies has a few megabytes.
const MAX_TOTAL_BYTES: u64 = 32 * 1024 * 1024;
/// Maximum depth of directories, because symbolic links can form cycles.
const MAX_DIRECTORY_DEPTH: usize = 8;
/// How often a read is repeated if files change meanwhile.
const MAX_READ_ATTEMPTS: usize = 5;

/// Why policy files cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PolicyFilesError {
    /// A path does not exist or may not be read.
    #[error("cannot read {path}: {problem}")]
    Unreadable {
        /// The given path, or a file below it.
        path: String,
        /// The error of the operating system.
        problem: String,
    },
    /// The paths contain no policy file.
    #[error("there is no policy file (.yaml, .yml, .json) in {0}")]
    Empty(String),
    /// The files are too large.
    #[error(
        "the files in {paths} have {bytes} bytes, more than {MAX_TOTAL_BYTES}: name a directory with policies only"
    )]
    TooLarge {
        /// The given paths.
        paths: String,
        /// Size of all files.
        bytes: u64,
    },
    /// The files changed during every attempt.
    #[error("the files in {0} changed while they were read: the next attempt is in a second")]
    Changing(String),
}

/// Metadata of files. Two fingerprints differ if a file was changed, added or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fingerprint(Vec<(PathBuf, u64, Option<SystemTime>, u64)>);

impl Fingerprint {
    fn bytes(&self) -> u64 {
        self.0.iter().map(|(_, length, ..)| length).sum()
    }
}

/// Returns the fingerprint of all files below these paths, in order.
///
/// # Errors
/// If a path does not exist or may not be read.
pub(crate) fn fingerprint(paths: &[PathBuf]) -> Result<Fingerprint, PolicyFilesError> {
    use std::os::unix::fs::MetadataExt;
    let mut found = Vec::new();
    for path in paths {
        for file in list_files(path)? {
            let metadata = fs::metadata(&file).map_err(|error| unreadable(&file, &error))?;
            found.push((file, metadata.len(), metadata.modified().ok(), metadata.ino()));
        }
    }
    Ok(Fingerprint(found))
}

fn unreadable(path: &Path, problem: &std::io::Error) -> PolicyFilesError {
    PolicyFilesError::Unreadable { path: path.display().to_string(), problem: problem.to_string() }
}

/// Returns `path` itself if it is a file of any name, or all policy files below a directory, in order.
///
/// # Errors
/// If the path does not exist or may not be read.
pub(crate) fn list_files(path: &Path) -> Result<Vec<PathBuf>, PolicyFilesError> {
    let mut found = Vec::new();
    visit(path, 0, &mut found)?;
    Ok(found)
}

fn visit(path: &Path, depth: usize, found: &mut Vec<PathBuf>) -> Result<(), PolicyFilesError> {
    let metadata = fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if !metadata.is_dir() {
        found.push(path.to_owned());
        return Ok(());
    }
    if depth == MAX_DIRECTORY_DEPTH {
        return Ok(());
    }
    list_entries(path)?.iter().try_for_each(|entry| visit(entry, depth + 1, found))
}

/// Returns the policy files and directories directly in a directory, in order.
///
/// # Errors
/// If the directory may not be read.
pub(crate) fn list_entries(directory: &Path) -> Result<Vec<PathBuf>, PolicyFilesError> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| unreadable(directory, &error))? {
        let entry = entry.map_err(|error| unreadable(directory, &error))?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        let entry = entry.path();
        if !hidden && (is_policy_file(&entry) || entry.is_dir()) {
            entries.push(entry);
        }
    }
    entries.sort();
    Ok(entries)
}

/// Whether the path has the extension of a policy file.
pub(crate) fn is_policy_file(path: &Path) -> bool {
    path.extension().is_some_and(|found| POLICY_FILE_EXTENSIONS.iter().any(|known| found == *known))
}

/// Reads one file.
///
/// # Errors
/// If the file does not exist or may not be read.
pub(crate) fn read_file(path: &Path) -> Result<SourceFile, PolicyFilesError> {
    let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
    Ok(SourceFile { name: path.display().to_string(), bytes })
}

/// Reads all files below these paths as one consistent version.
///
/// # Errors
/// If a path cannot be read, or there is no policy file.
pub(crate) fn read_files(paths: &[PathBuf]) -> Result<(Fingerprint, Vec<SourceFile>), PolicyFilesError> {
    let named = || paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ");
    for _ in 0..MAX_READ_ATTEMPTS {
        let before = fingerprint(paths)?;
        if before.0.is_empty() {
            return Err(PolicyFilesError::Empty(named()));
        }
        if before.bytes() > MAX_TOTAL_BYTES {
            return Err(PolicyFilesError::TooLarge { paths: named(), bytes: before.bytes() });
        }
        let files: Result<Vec<SourceFile>, PolicyFilesError> =
            before.0.iter().map(|(path, ..)| read_file(path)).collect();
        if fingerprint(paths).as_ref() != Ok(&before) {
            continue;
        }
        return Ok((before, files?));
    }
    Err(PolicyFilesError::Changing(named()))
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
        let (_, files) = read_files(&[directory.to_owned()]).expect("readable");
        let short = |file: &SourceFile| {
            let name = Path::new(&file.name).strip_prefix(directory).expect("below").display().to_string();
            format!("{name}={}", String::from_utf8_lossy(&file.bytes))
        };
        files.iter().map(short).collect()
    }

    /// Writes a version of a ConfigMap as the kubelet mounts it: files behind a symbolic link that is
    /// swapped.
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
    fn a_mounted_config_map_is_read_and_its_changes_are_detected() {
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
    fn directories_are_read_in_order_and_an_empty_one_is_an_error() {
        let directory = directory("order");
        fs::create_dir_all(directory.join("teams")).expect("made");
        for name in ["z.yaml", "teams/a.yml", ".hidden.yaml"] {
            fs::write(directory.join(name), "x").expect("written");
        }
        assert_eq!(names(&directory), ["teams/a.yml=x", "z.yaml=x"]);
        let empty = directory.join("empty");
        fs::create_dir_all(&empty).expect("made");
        let problem = read_files(&[empty]).expect_err("empty").to_string();
        assert!(problem.starts_with("there is no policy file"), "{problem}");
        let missing = read_files(&[directory.join("missing")]).expect_err("missing").to_string();
        assert!(missing.starts_with("cannot read ") && missing.contains("No such file"), "{missing}");
        fs::remove_dir_all(directory).expect("removed");
    }
}
