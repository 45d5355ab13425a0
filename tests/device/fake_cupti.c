/* CUPTI's entry points, which the driver of fake_driver.c implements. */

typedef void (*Callback)(void *, int, unsigned, const void *);
int fake_subscribe(Callback);

int cuptiSubscribe(void **subscriber, Callback function, void *data) { return (void)subscriber, (void)data, fake_subscribe(function); }
int cuptiEnableDomain(unsigned enable, void *subscriber, int domain) { return (void)enable, (void)subscriber, (void)domain, 0; }
