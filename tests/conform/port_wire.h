/* The functions of the wire ports (port_wire.c), for the table of ports. */
#ifndef CONFORM_PORT_WIRE_H
#define CONFORM_PORT_WIRE_H

#include "conform.h"

int wire_open(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr);
int wire_join(struct world *w, struct hdl_adapter *a, struct hdl_adapter *b);
unsigned wire_carry(struct world *w);
bool wire_is_busy(struct world *w);
void wire_end(struct world *w);

#endif
