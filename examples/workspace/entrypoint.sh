#!/bin/sh
# The entry point of the image: proves that the image is whole, then becomes talaria. An image that lacks the plugin, or a
# gateway that cannot read its configuration, ends here with a reason, and not minutes later as a port that nobody bound.
#   entrypoint.sh serve --config /etc/talaria/talaria.toml
set -eu

PLUGIN=hermes-platform-molecule-a2a     # the package
NAME=molecule_a2a                       # its entry point, as plugins.enabled names it
export HERMES_HOME="${HERMES_HOME:-/configs/.hermes}"

fail() {
    echo "entrypoint: $1" >&2
    exit 1
}

# Writes the gateway's files as the next start would, and starts nothing.
MOLECULE_RUNTIME_PREPARE_ONLY=1 talaria "$@" || fail "the gateway's files could not be written"

shown=$(hermes config show 2>&1) || fail "hermes cannot read its configuration: $shown"
case "$shown" in
    *"$HERMES_HOME/config.yaml"*) ;;
    *) fail "hermes reads another configuration than $HERMES_HOME/config.yaml" ;;
esac

case "${MOLECULE_A2A_PLATFORM_ENABLED:-no}" in
    1 | [Tt][Rr][Uu][Ee] | [Yy][Ee][Ss] | [Oo][Nn])
        pip show "$PLUGIN" > /dev/null 2>&1 || fail "the plugin $PLUGIN is not installed in this image"
        grep -q "$NAME" "$HERMES_HOME/config.yaml" || fail "$HERMES_HOME/config.yaml does not enable $NAME"
        ;;
esac

# The tools of the workspace, where they are configured.
if grep -q '^mcp_servers:' "$HERMES_HOME/config.yaml"; then
    listed=$(hermes mcp list 2>&1) || fail "hermes cannot list its MCP servers: $listed"
    case "$listed" in
        *molecule*) ;;
        *) fail "hermes does not list the MCP server molecule; is hermes-agent[mcp] installed?" ;;
    esac
fi

exec talaria "$@"
