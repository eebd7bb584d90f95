//! The store of a user who names none: one folder for all processes of a user on a host, whatever their environment.
//!
//! The scenarios run as root in a mount namespace of their own, with a `/var/lib`, a `/dev/shm` and a user database of their own,
//! so that nothing of the host is touched. Where that is not allowed they say so, and check nothing.
#![allow(clippy::print_stdout)]

use std::process::Command;

use crate::house::{Done, House, Running};

/// What every scenario begins with. `ann` is a user who logs in, 33 is a system user, `$HOMELESS` is in no user database.
const STAGE: &str = r#"
set -eu
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /var/lib
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
ANN=54001 HOMELESS=54002 MALLORY=54003
# Where every user finds it, also those with a private /tmp, wherever the project is.
install -m 755 "$LEASEHOLD" /var/lib/program && LEASEHOLD=/var/lib/program
# An /etc of its own: some hosts have no machine-id.
cp -a /etc /var/lib/etc && mount --bind /var/lib/etc /etc
echo "ann:x:$ANN:$ANN::/var/lib/ann:/bin/sh" >> /etc/passwd
rm -f /etc/machine-id && echo 0123456789abcdef0123456789abcdef > /etc/machine-id && chmod 444 /etc/machine-id
mkdir -m 700 /var/lib/ann && chown $ANN:$ANN /var/lib/ann
# The program, as a user, with nothing in its environment but what is named: as USER [NAME=VALUE...] -- ARGS
as() {
    user=$1; shift
    set_by=
    while [ "$1" != -- ]; do set_by="$set_by $1"; shift; done
    shift
    setpriv --reuid "$user" --regid "$user" --clear-groups env -i PATH="$PATH" $set_by "$LEASEHOLD" "$@"
}
code() { if "$@" > said 2>&1; then echo 0; else echo $?; fi; }
fail() { echo "FAILED: $*"; cat said; exit 1; }
# Whatever happens, no holder stays behind.
trap 'for user in 0 33 $ANN; do : > /var/lib/go-$user; done' EXIT
"#;

/// Runs a script after [`STAGE`]; `None` where namespaces can't be made.
fn scenario(script: &str) -> Option<Done> {
    let allowed = Command::new("unshare").args(["-m", "true"]).status();
    if !allowed.is_ok_and(|status| status.success()) {
        println!("skipped: needs root, and a system that lets it make a mount namespace (unshare -m)");
        return None;
    }
    let house = House::new();
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", &format!("{STAGE}{script}")]);
    command.env("LEASEHOLD", env!("CARGO_BIN_EXE_leasehold")).current_dir(house.path(""));
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let done = Running::of(command.spawn().expect("unshare starts")).done();
    Some(done.expect(0))
}

#[test]
fn a_lock_is_one_lock_in_every_environment_of_its_user() {
    scenario(
        r#"
for user in 0 33 $ANN; do
    run=/var/lib/run-$user; mkdir -m 700 $run && chown $user $run
    # A login shell holds it.
    as $user HOME=/var/lib/ann XDG_RUNTIME_DIR=$run -- run nightly -- sh -c "echo held; until [ -e /var/lib/go-$user ]; do sleep 0.05; done" > held-$user 2> said-$user &
    holder=$!
    until [ -s held-$user ]; do kill -0 $holder || fail "user $user: no holder"; sleep 0.05; done
    # Another login, cron, `sudo -u` that keeps the environment, a shell without anything.
    for environment in "XDG_RUNTIME_DIR=$run HOME=/var/lib/ann" "HOME=/var/lib/ann SHELL=/bin/sh" "HOME=/root" \
        "HOME=/" "TMPDIR=/var/tmp" "XDG_STATE_HOME=$run TMPDIR=$run" "LEASEHOLD_STORE="; do
        got=$(code as $user $environment -- run nightly --try -- true)
        [ "$got" = 75 ] || fail "user $user with $environment: $got"
    done
    got=$(code as $user -- run nightly --try -- true)
    [ "$got" = 75 ] || fail "user $user with nothing: $got"
    # A service with a /tmp, a /var/tmp and devices of its own, as systemd's PrivateTmp= and PrivateDevices= make them.
    private="mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /var/tmp; mkdir /var/lib/shm-$user; mount --bind /dev/shm /var/lib/shm-$user
        mount -t tmpfs tmpfs /dev; mkdir /dev/shm; mount --bind /var/lib/shm-$user /dev/shm; : > /dev/null"
    got=$(code unshare -m sh -ec "$private
        exec setpriv --reuid $user --regid $user --clear-groups env -i PATH='$PATH' '$LEASEHOLD' run nightly --try -- true")
    [ "$got" = 75 ] || fail "user $user with a private /tmp: $got"
    # The user logs out.
    rm -rf $run
    got=$(code as $user -- run nightly --try -- true)
    [ "$got" = 75 ] || fail "user $user after the logout: $got"
    : > /var/lib/go-$user; wait $holder
    got=$(code as $user -- run nightly --try -- true)
    [ "$got" = 0 ] || fail "user $user when it is free: $got"
done
"#,
    );
}

#[test]
fn the_default_folder_is_private_and_shown() {
    let Some(done) = scenario(
        r#"
for user in 0 33 $ANN; do
    as $user -- run x -- sh -c 'echo "$LEASEHOLD_STORE"'
    folder=$(as $user -- --format json stores | sed -n 's/.*"default_folder":"\([^"]*\)".*/\1/p')
    echo "$folder"
    [ "$(stat -c %a:%u "$folder")" = "700:$user" ] || fail "$folder: $(stat -c %a:%u "$folder")"
    splits=container
    case $user in 33) splits="container RemoveIPC=yes" ;; "$ANN") splits="container /etc/machine-id" ;; esac
    for word in $splits; do
        as $user -- stores | grep -A1 'default folder' | grep -q "$word" || fail "$user: stores don't name $word"
        as $user -- doctor | grep "$folder" | grep -q "$word" || fail "$user: the doctor does not name $word"
    done
done
"#,
    ) else {
        return;
    };
    let lines: Vec<&str> = done.stdout.lines().collect();
    for (pair, folder) in lines.chunks(2).zip([
        "/var/lib/leasehold",
        "/dev/shm/leasehold-33",
        "/var/lib/ann/.local/state/leasehold/host",
    ]) {
        assert!(pair[1].starts_with(folder), "{lines:?}");
        assert_eq!(pair[0], format!("file:{}", pair[1]), "{lines:?}");
    }
}

#[test]
fn a_default_folder_that_can_not_be_had_is_an_error_and_never_another_folder() {
    scenario(
        r#"
refused() { # USER WORDS
    user=$1; shift
    if as $user -- run x -- true 2> said; then fail "user $user got a lock"; fi
    for word in "$@"; do grep -q -- "$word" said || fail "no $word in: $(cat said)"; done
}
# Another user was there first.
setpriv --reuid $MALLORY --clear-groups mkdir -m 777 /dev/shm/leasehold-33
refused 33 /dev/shm/leasehold-33 "belongs to the user $MALLORY" "file:PATH"
rmdir /dev/shm/leasehold-33
setpriv --reuid $MALLORY --clear-groups ln -s /var/lib/ann /dev/shm/leasehold-33
refused 33 /dev/shm/leasehold-33 "symbolic link"
# No home, one that is not there, and one that is hidden from a service (ProtectHome=).
refused $HOMELESS "no home" LEASEHOLD_STORE
mv /var/lib/ann /var/lib/elsewhere
refused $ANN /var/lib/ann file:PATH
mkdir -m 000 /var/lib/ann
refused $ANN /var/lib/ann file:PATH
"#,
    );
}

#[test]
fn a_machine_id_that_can_not_be_used_is_an_error_and_never_another_folder() {
    scenario(
        r#"
as $ANN -- run nightly -- sh -c "echo held; until [ -e /var/lib/go-$ANN ]; do sleep 0.05; done" > held 2> said &
holder=$!
until [ -s held ]; do kill -0 $holder || fail "no holder"; sleep 0.05; done
# What a sandbox of the same user may see, with the home in place: InaccessiblePaths=, an image that was never booted, no file.
: > empty; chmod 644 empty; echo 0123456789abcdef0123456789abcdef > private; chmod 600 private; echo uninitialized > early
for id in empty private early missing; do
    if [ $id = missing ]; then hide="rm /etc/machine-id"; else hide="mount --bind $id /etc/machine-id"; fi
    got=$(code unshare -m sh -ec "$hide
        exec setpriv --reuid $ANN --regid $ANN --clear-groups env -i PATH='$PATH' '$LEASEHOLD' run nightly --try -- true")
    [ "$got" = 64 ] || fail "with a machine-id that is $id: $got"
    for word in /etc/machine-id file:PATH; do grep -q "$word" said || fail "$id: no $word in: $(cat said)"; done
done
"#,
    );
}
