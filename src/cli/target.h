/* NODE:PORT on the command line: a port of a node of this machine, or of a host. */
#ifndef CLI_TARGET_H
#define CLI_TARGET_H

#include <stdbool.h>
#include <stdint.h>

#include <heddle/heddle.h>

struct target {
	char *node;
	uint16_t port;
};

/* A port from 1 to 65535. */
bool target_port(const char *text, uint16_t *port);
/* NODE:PORT, ADDRESS:PORT or [ADDRESS]:PORT; @text is changed, and part of @target. */
bool target_parse(char *text, struct target *target);
/* The address of the node @name, which a program of this machine is on. */
bool target_node(const char *name, struct hdl_gid *gid);
/* The same, or that of the host @name. False: there is none, and @command has said so. */
bool target_find(const char *command, const char *name, struct hdl_gid *gid);

#endif
