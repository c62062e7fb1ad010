/* The functions of the wire ports (port_wire.c) and the stream port (port_stream.c), for the table
 * of ports. */
#ifndef CONFORM_PORT_WIRE_H
#define CONFORM_PORT_WIRE_H

#include "conform.h"

int wire_open(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr);
int wire_join(struct world *w, struct hdl_adapter *a, struct hdl_adapter *b);
unsigned wire_carry(struct world *w);
bool wire_is_busy(struct world *w);
void wire_end(struct world *w);

int stream_open(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr);
int stream_join(struct world *w, struct hdl_adapter *a, struct hdl_adapter *b);
void stream_attach(struct world *w, struct hdl_qp *qa, struct hdl_qp *qb);
unsigned stream_carry(struct world *w);
void stream_kill(struct hdl_adapter *adapter);
void stream_end(struct world *w);

int tcp_open(struct world *w, struct hdl_adapter **out, const struct hdl_open_attr *attr);
void tcp_attach(struct world *w, struct hdl_qp *qa, struct hdl_qp *qb);
unsigned tcp_carry(struct world *w);
void tcp_kill(struct hdl_adapter *adapter);
void tcp_end(struct world *w);

#endif
