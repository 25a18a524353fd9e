/* The camera on the ladder. */
struct frame {
    int width;
    int height;
    unsigned char pixels[64];
};

struct frame take_frame(int attempts);
int send_frame(const struct frame *f);
