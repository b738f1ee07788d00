#!/bin/sh
# Finds Java 17 or newer, installing it where that needs no questions, and prints its home.
# Only the home goes to stdout: JAVA_HOME=$(tools/setup_java.sh)
set -eu

tools=$(cd "$(dirname "$0")" && pwd)

# Prints the home of the given `java` if it runs and is new enough.
home_of() {
    # Asking Java itself sees through links and launchers alike, which following links would not.
    about=$("$1" -XshowSettings:properties -version 2>&1) || return 1
    # The number that counts: 17 in "17.0.15", 21 in "21", 25 in "25-ea", 1 (too old) in "1.8.0_402".
    version=$(printf '%s\n' "$about" | sed -n 's/.* version "\([0-9][0-9]*\).*/\1/p' | head -n 1)
    home=$(printf '%s\n' "$about" | sed -n 's/^ *java\.home = //p' | head -n 1)
    [ "${version:-0}" -ge 17 ] && [ -n "$home" ] && printf '%s\n' "$home"
}

find_java() {
    for java in \
        "${JAVA_HOME:+$JAVA_HOME/bin/java}" \
        "$(command -v java || true)" \
        /usr/lib/jvm/*/bin/java \
        /opt/homebrew/opt/openjdk*/bin/java \
        /usr/local/opt/openjdk*/bin/java \
        /Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java
    do
        [ -x "$java" ] && home_of "$java" && return
    done
    return 1
}

find_java && exit
# Not every release carries Java 17; the next long-term one does as well.
for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
    "$tools/apt_install.sh" "$package" && find_java && exit
done

cat >&2 <<'END'
Evenkeel needs Java 17 or newer, and none was found. Install it and run this again:
  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless
  Fedora:          sudo dnf install java-21-openjdk-headless
  macOS:           brew install openjdk@17
or set JAVA_HOME to the directory of one you already have.
END
exit 1
