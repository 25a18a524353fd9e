#include "camera.h"

struct frame take_frame(int attempts)
{
    struct frame f = {8, 8, {0}};
    while (attempts-- > 0) {
        f.pixels[0] = 1;
    }
    return f;
}

int send_frame(const struct frame *f)
{
    return f->width == 8 ? 0 : 1;
}
